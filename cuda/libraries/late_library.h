// LateLibrary: a shared library that is opened at its first use, so that processes that do not use
// it neither load it nor need it installed.
#pragma once
#include <span>
#include <string>

#include "core/base/env.h"

namespace shmap::cuda {

// The description of a library, before it is opened.
struct LateLibraryInfo {
  const char* what;                    // its name in texts, "NCCL"
  std::span<const char* const> names;  // tried in this order
  env::Var path;                       // a variable; if it is set, only its value is tried
  const char* probe;                   // a function of the library, to detect that it is already
                                       // loaded
  const char* package;                 // what to install, "libnccl2"
};

// The text of a version that a library gives as a number: 12.4.2 for 120402 (cuBLASLt, cuDNN,
// NCCL).
std::string version_text(std::size_t number);

// The library is never closed, so symbols stay valid.
class LateLibrary {
 public:
  // Opens the library. If the process has linked it or opened it with global symbols, that copy is
  // used, because two copies would not share their state. Throws DeviceError, with the names that
  // were tried, the error of each, and a remedy. `info` must outlive the object.
  explicit LateLibrary(const LateLibraryInfo& info);

  const std::string& origin() const { return origin_; }  // the file, or "this process"

  // The function of that name. Throws DeviceError where the library lacks it.
  template <class Fn>
  void load(const char* name, Fn*& function) const {
    function = reinterpret_cast<Fn*>(find(name));
    if (function == nullptr) throw_missing(name);
  }

  // Throws the DeviceError for a version that is too old.
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
