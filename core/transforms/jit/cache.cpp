#include "core/transforms/jit/cache.h"

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "core/array/tree_paths.h"
#include "core/base/env.h"
#include "core/compiler/lowering/per_device.h"

namespace shmap::detail {

Scope scope_here() {
  const Trace& trace = current_trace();
  Scope scope;
  scope.env = trace.axis_env();
  scope.check_variance = trace.checks_variance();
  scope.auto_pbroadcast = trace.auto_pbroadcast();
  if (trace.staged() || trace.transforms()) {
    scope.kind = Scope::staged;
  } else if (scope.env != nullptr) {  // asked first: the cast would be a tenth of a replay's time
    if (const auto* body = dynamic_cast<const PerDeviceTrace*>(&trace)) {
      scope.kind = Scope::body;
      scope.mesh = body->mesh();
    }
  }
  return scope;
}

bool Signature::matches(const Node& node) const {
  if (!(node.type == type) || node.type.weak() != type.weak()) return false;
  if (node.kind != NodeKind::stored) return mesh == nullptr;
  const auto& stored = static_cast<const StoredNode&>(node);
  return stored.mesh == mesh && stored.sharding == sharding && stored.committed == committed;
}

Signature signature_of(const Node& node) {
  Signature s;
  s.type = node.type;
  if (node.kind == NodeKind::stored) {
    const auto& stored = static_cast<const StoredNode&>(node);
    s.mesh = stored.mesh;
    s.sharding = stored.sharding;
    s.committed = stored.committed;
  }
  return s;
}

std::shared_ptr<Entry> make_entry(const void* tag, const Scope& scope, const MeshImpl* mesh,
                                  const FlatTree& arguments) {
  auto entry = std::make_shared<Entry>();
  entry->tag = tag;
  entry->scope = scope;
  entry->mesh = mesh;
  entry->key = arguments.key;
  for (const Array& x : arguments.leaves) entry->arguments.push_back(signature_of(*node_of(x)));
  return entry;
}

namespace {

std::string describe(const Signature& s) {
  std::string text = to_string(s.type);
  if (s.type.weak()) text += " (weak)";
  if (s.sharding && s.committed)
    text += " " + to_string(NamedSharding(Mesh(s.mesh), s.sharding->spec()));
  return text;
}

}  // namespace

std::shared_ptr<Entry> JitCacheImpl::find(const void* tag, const Scope& scope,
                                          const FlatTree& arguments) {
  std::lock_guard lock(lock_);
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& e = **it;
    if (e.tag != tag || e.arguments.size() != arguments.leaves.size() || e.key != arguments.key ||
        !(e.scope == scope))
      continue;
    bool same = true;
    for (std::size_t a = 0; a < e.arguments.size() && same; ++a)
      same = e.arguments[a].matches(*node_of(arguments.leaves[a]));
    if (!same) continue;
    std::rotate(entries_.begin(), it, it + 1);
    return entries_.front();
  }
  return nullptr;
}

void JitCacheImpl::insert(std::shared_ptr<Entry> entry) {
  static const auto limit = static_cast<std::size_t>(env::integer(env::Var::jit_cache));
  std::shared_ptr<Entry> gone;  // destroyed after the lock is released, since that takes time
  std::lock_guard lock(lock_);
  entries_.insert(entries_.begin(), std::move(entry));
  if (entries_.size() <= limit) return;
  gone = std::move(entries_.back());
  entries_.pop_back();
}

std::vector<std::shared_ptr<Entry>> JitCacheImpl::entries() const {
  std::lock_guard lock(lock_);
  return entries_;
}

std::string JitCacheImpl::plan_text() const {
  for (const auto& e : entries())
    if (e->plan) return e->plan->text();
  return "no plan: nothing was called, or it is interpreted\n";
}

void JitCacheImpl::explain(const FlatTree& arguments, const Scope& scope, SourceLine source) const {
  const std::vector<std::shared_ptr<Entry>> known = entries();
  std::string text = "shmap: jit" + at_line(source) + "\n  is traced";
  if (known.empty()) {
    text += ": its first call\n";
  } else {
    const Entry& e = *known.front();
    text += " again:\n";
    if (!(e.scope == scope)) text += "  it is called in another scope\n";
    if (e.key != arguments.key) text += "  static members or sizes of containers differ\n";
    if (e.arguments.size() != arguments.leaves.size()) {
      text += "  the number of arrays differs: " + std::to_string(arguments.leaves.size()) +
              " now, " + std::to_string(e.arguments.size()) + " before\n";
    }
    const std::vector<std::string> paths = leaf_paths(arguments.node, "args");
    for (std::size_t a = 0; a < e.arguments.size() && a < arguments.leaves.size(); ++a) {
      const Node& node = *node_of(arguments.leaves[a]);
      if (e.arguments[a].matches(node)) continue;
      const Signature now = signature_of(node);
      const Signature& before = e.arguments[a];
      // Of an array that lies nowhere in particular the sharding says nothing, except beside that
      // of one which was placed.
      const auto unplaced = [&](const Signature& s) {
        return s.committed || now.committed == before.committed ? "" : " (not placed)";
      };
      text += "  " + paths[a] + " is " + describe(now) + unplaced(now) + " now, and was " +
              describe(before) + unplaced(before) + " before\n";
    }
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
}

JitCache::JitCache() : impl_(std::make_unique<JitCacheImpl>()) {}
JitCache::~JitCache() = default;

std::string JitCache::plan_text() const { return impl_->plan_text(); }

}  // namespace shmap::detail
