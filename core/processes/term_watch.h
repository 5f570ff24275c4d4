// A last message of the process before SIGTERM ends it.
#pragma once

namespace shmap {

// If SIGTERM has its default action, installs a handler that wakes a thread, which this call
// starts. The thread runs `say`; then the signal ends the process as it would have without the
// handler. A handler of the program, installed before or later, takes precedence. A further SIGTERM
// that comes within 1 s does not cut `say` short: mpirun sends its own when another process of the
// job ends. A later one ends the process at once, and so does the first in a forked child. Called
// once.
void say_before_term(void (*say)() noexcept) noexcept;

}  // namespace shmap
