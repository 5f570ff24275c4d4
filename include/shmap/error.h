// The exceptions that the library throws: one base class, and a subclass for each thing that a
// caller can react to.
//
// A message says what was given, what was wanted, which argument, axis or spec is meant, and how to
// fix it. Its last lines say where: the operation that computed the value, the transform in
// progress ("in the jit made at f.cpp:36"), and last the caller's line, as far as these are known.
// An error of a task that ran after its operation had returned names the operation and its line.
// The library never aborts the process, with one exception: a user's kernel that does not return
// and runs on the thread that called it (docs/faults.md).
#pragma once
#include <stdexcept>
#include <string>

namespace shmap {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ValueError : Error {  // a value, shape, spec or axis is invalid
  using Error::Error;
};
struct TypeError : Error {  // a dtype, a variance or a tree has the wrong type
  using Error::Error;
};
struct DeviceError : Error {  // a device, or a library that drives it, is missing, lost or failed
  using Error::Error;
};
struct OutOfMemory : Error {  // names the device, the bytes asked for and the bytes in use
  using Error::Error;
};
// Names the collective, its axes and the device or process at fault.
struct CollectiveError : Error {
  using Error::Error;
};

// The line of user code that called an operation. Default arguments fill it in, so that callers
// write nothing.
struct SourceLine {
  const char* file = nullptr;
  int line = 0;
  static constexpr SourceLine current(const char* f = __builtin_FILE(), int l = __builtin_LINE()) {
    return {f, l};
  }
  std::string str() const;  // "dir/file.cpp:12", or "" where unknown
};

}  // namespace shmap
