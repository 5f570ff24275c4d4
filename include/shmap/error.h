// The errors of the library: one base and a kind for each thing that a caller can react to.
//
// Every message says what was given, what was wanted, which argument, axis or spec, and how to mend
// it; where the caller's line is known it is the message's last line. Nothing in the library
// aborts.
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
