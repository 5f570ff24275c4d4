// Environment variables that are set while the library is loaded, and never later.
#pragma once

namespace shmap::env {

// Sets a variable of another library that this library will open, if it is unset. Only for
// functions with __attribute__((constructor)): if the program is linked with the library, these run
// before main. Does nothing once the process has a second thread, which may be reading the
// environment; the other library's default then applies.
void set_at_load(const char* name, const char* value) noexcept;

}  // namespace shmap::env
