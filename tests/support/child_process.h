// Runs code in a child process with its own environment variables, which the library reads once per
// process.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace shmap::test {

struct ChildResult {
  int exit_code = -1;  // -1 where a signal ended it
  int signal = 0;
  std::string output;  // stdout and stderr; last the text of what `run` threw
};

// Forks, sets the variables, and calls `run` with its output caught. The child exits through
// exit(), so that what happens at exit is seen: with 0, or 1 where `run` threw; a signal ends it
// after 60 s. The calling process must have one thread, and (but for tests of that) not have
// used a device yet.
ChildResult in_child(const std::vector<std::pair<std::string, std::string>>& environment,
                     const std::function<void()>& run);

// True if SHMAP_DEVICES asks for GPUs, and true if those are the simulator's: for a process whose
// children start the runtime while it does not itself.
bool asks_for_gpus();
bool gpus_are_simulated();
// The values of SHMAP_EXECUTOR to test; GPUs have none.
std::vector<const char*> executors();

}  // namespace shmap::test
