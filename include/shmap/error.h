// The errors of the library: one base and a kind for each thing that a caller can react to.
//
// A message says what was given, what was wanted, which argument, axis or spec, and how to mend it.
// Its last lines say where: the operation that gave a value, the transform that is at work ("in the
// jit made at f.cpp:36"), and, last, the line of the call, as far as these are known. Errors of
// tasks that ran later name the operation and its line. The library never aborts the process.
#pragma once
#include <stdexcept>
#include <string>

namespace shmap {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ValueError : Error {  // a value, shape, spec or axis that cannot be worked with
  using Error::Error;
};
struct TypeError : Error {  // a dtype, a variance or a tree of the wrong type
  using Error::Error;
};
struct DeviceError : Error {  // a device that is absent, lost or asked for too much
  using Error::Error;
};
struct OutOfMemory : Error {  // names device, bytes asked for and bytes in use
  using Error::Error;
};
struct CollectiveError
    : Error {  // names the collective, its axes and the device or process at fault
  using Error::Error;
};

// The line of user code that called an operation. Filled in by default arguments, so that it costs
// a user nothing.
struct SourceLine {
  const char* file = nullptr;
  int line = 0;
  static constexpr SourceLine current(const char* f = __builtin_FILE(), int l = __builtin_LINE()) {
    return {f, l};
  }
  std::string str() const;  // "dir/file.cpp:12", or "" where unknown
};

}  // namespace shmap
