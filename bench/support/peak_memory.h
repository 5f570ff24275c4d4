// The most memory that a program's memory spaces hold while it is called repeatedly.
#pragma once
#include <functional>
#include <string>

namespace shmap::bench {

// Calls six times. Prints the most bytes that all memory spaces of this process held together from
// the fourth call on: arguments, results, and everything between. `call` drops the results of the
// last call, computes new ones and waits for them. `check` returns what is wrong with the last
// results, or ""; a fault is printed as `#wrong <what>: …`. Returns the exit status for main.
int print_peak_memory(const std::string& what, const std::function<void()>& call,
                      const std::function<std::string()>& check);

}  // namespace shmap::bench
