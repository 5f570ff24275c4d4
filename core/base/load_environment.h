// The environment, written while the library is loaded and never after.
#pragma once

namespace shmap::env {

// Sets a variable of another library that this one will open, where it is unset. For functions of
// __attribute__((constructor)) alone: where the program is linked with the library they run before
// main. Does nothing once the process has a second thread, which may be reading the environment:
// where the library is loaded that late, the other library's own default stays.
void set_at_load(const char* name, const char* value) noexcept;

}  // namespace shmap::env
