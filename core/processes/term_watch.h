// TermWatch: what a process says before SIGTERM ends it.
#pragma once

namespace shmap {

// Where SIGTERM has its default action, gives it a handler, which wakes a thread that this call
// starts; that runs `say`, and then the signal ends the process as it would have without. A handler
// of the program, before this or later, takes its place. A second SIGTERM ends the process at once,
// and so does the first one that a forked child gets. Once a process.
void say_before_term(void (*say)() noexcept) noexcept;

}  // namespace shmap
