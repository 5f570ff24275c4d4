// What a program's memory spaces hold at their fullest while it is called again and again.
#pragma once
#include <functional>
#include <string>

namespace shmap::bench {

// Calls six times, and prints the bytes that all memory spaces of this process held at most from
// the fourth call on, summed: arguments, results, and everything between. `call` drops the results
// of the last call, makes new ones and waits for them. `check` says what is wrong with the last, or
// nothing; that is printed as `#wrong <what>: …`. The exit status for main.
int print_peak_memory(const std::string& what, const std::function<void()>& call,
                      const std::function<std::string()>& check);

}  // namespace shmap::bench
