#include "core/base/scope_names.h"

#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shmap {

namespace {

// The open scopes of one thread as one text, and the offset in it at which each scope begins.
struct OpenScopes {
  std::string path;
  std::vector<std::size_t> begins;
};
OpenScopes& open_scopes() {
  static thread_local OpenScopes scopes;
  return scopes;
}

constexpr std::size_t kMostLines = 65536;

// The files of source lines that belong to a scope. Never destroyed, and entries are never removed,
// because source lines in programs and errors point to them.
struct ScopedFiles {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, const char*> known;  // (file, scope)
  std::unordered_map<const char*, std::string> scopes;
};
ScopedFiles& scoped_files() {
  static auto* files = new ScopedFiles();
  return *files;
}

SourceLine in_scope(std::string scope, SourceLine line) {
  if (line.file == nullptr) return line;
  ScopedFiles& files = scoped_files();
  std::lock_guard lock(files.mutex);
  if (const auto it = files.scopes.find(line.file); it != files.scopes.end())
    scope = joined_scopes(scope, it->second);
  const auto known = files.known.find({line.file, scope});
  if (known != files.known.end()) return {known->second, line.line};
  if (files.known.size() >= kMostLines) return line;
  const auto made = files.known.emplace(std::pair(std::string(line.file), scope), nullptr).first;
  made->second = made->first.first.c_str();  // map nodes do not move, so the pointer stays valid
  files.scopes.emplace(made->second, std::move(scope));
  return {made->second, line.line};
}

}  // namespace

void enter_scope(const std::string& name) {
  OpenScopes& scopes = open_scopes();
  scopes.begins.push_back(scopes.path.size());
  try {
    scopes.path += scopes.path.empty() ? name : "/" + name;
  } catch (...) {
    scopes.begins.pop_back();
    throw;
  }
}

void leave_scope() noexcept {
  OpenScopes& scopes = open_scopes();
  if (scopes.begins.empty()) return;
  // A scope that is left while scopes are hidden was opened before they were hidden; the path then
  // has nothing to cut.
  if (scopes.begins.back() <= scopes.path.size()) scopes.path.resize(scopes.begins.back());
  scopes.begins.pop_back();
}

std::string current_scope() { return open_scopes().path; }

std::string joined_scopes(const std::string& outer, const std::string& inner) {
  if (outer.empty()) return inner;
  if (inner.empty()) return outer;
  if (inner == outer || inner.compare(0, outer.size() + 1, outer + "/") == 0) return inner;
  return outer + "/" + inner;
}

SourceLine in_current_scope(SourceLine line) {
  const OpenScopes& scopes = open_scopes();
  return scopes.path.empty() ? line : in_scope(scopes.path, line);
}

SourceLine in_scope_of(SourceLine outer, SourceLine line) {
  const std::string scope = scope_of(outer);
  return scope.empty() ? line : in_scope(scope, line);
}

std::string scope_of(SourceLine line) {
  ScopedFiles& files = scoped_files();
  std::lock_guard lock(files.mutex);
  const auto it = files.scopes.find(line.file);
  return it == files.scopes.end() ? std::string() : it->second;
}

ScopesHidden::ScopesHidden() noexcept : hidden_(std::move(open_scopes().path)) {
  open_scopes().path.clear();
}

ScopesHidden::~ScopesHidden() { open_scopes().path = std::move(hidden_); }

ScopesOf::ScopesOf(SourceLine line) {
  std::string inside = joined_scopes(open_scopes().path, scope_of(line));
  before_ = std::exchange(open_scopes().path, std::move(inside));
}

ScopesOf::~ScopesOf() { open_scopes().path = std::move(before_); }

}  // namespace shmap
