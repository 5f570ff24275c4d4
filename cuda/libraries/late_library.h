// LateLibrary: a shared library that is opened when it is first needed, so that a process without a
// use for it neither pays for it nor needs it installed.
#pragma once
#include <span>
#include <string>

#include "core/base/env.h"

namespace shmap::cuda {

// What is known of a library before it is opened.
struct LateLibraryInfo {
  const char* what;                    // its name in texts, "NCCL"
  std::span<const char* const> names;  // tried in this order
  env::Var path;                       // a variable: where it is set, that alone is tried
  const char* probe;                   // a function of it
  const char* package;                 // what to install, "libnccl2"
};

// Symbols stay valid for ever: it is never closed.
class LateLibrary {
 public:
  // Opens it. A library that the process has linked or opened for all to see is taken as it is: two
  // copies of one would not know of each other. Throws DeviceError, which says what was tried, what
  // each try said, and what to do. `info` must live as long as the object.
  explicit LateLibrary(const LateLibraryInfo& info);

  const std::string& origin() const { return origin_; }  // the file, or "this process"

  // The function of that name. DeviceError where there is none.
  template <class Fn>
  void load(const char* name, Fn*& function) const {
    function = reinterpret_cast<Fn*>(find(name));
    if (function == nullptr) throw_missing(name);
  }
  // The same, null where there is none.
  template <class Fn>
  void load_optional(const char* name, Fn*& function) const {
    function = reinterpret_cast<Fn*>(find(name));
  }

  // DeviceError: this version is too old.
  [[noreturn]] void throw_version(const std::string& found, const std::string& wanted) const;

 private:
  void* find(const char* name) const;
  [[noreturn]] void throw_missing(const char* name) const;
  std::string remedy() const;

  const LateLibraryInfo* info_;
  void* handle_ = nullptr;  // as dlopen's
  std::string origin_;
};

}  // namespace shmap::cuda
