#include "tests/support/child_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

namespace {
bool is_child = false;
}

// LeakSanitizer calls this at exit if it is linked. A child that leaves while threads still run
// cannot report leaks: its live memory is intended, and the tracer was seen to crash on such
// threads. The parent, which runs the same code to its end, is checked.
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return is_child ? 1 : 0; }

namespace shmap::test {

ChildResult in_child(const std::vector<std::pair<std::string, std::string>>& environment,
                     const std::function<void()>& run) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    is_child = true;
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    alarm(60);
    try {
      run();
    } catch (const std::exception& e) {
      std::printf("%s", e.what());
      std::exit(1);
    }
    std::exit(0);
  }
  close(ends[1]);
  ChildResult result;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    result.output.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

bool asks_for_gpus() {
  const char* const devices = std::getenv("SHMAP_DEVICES");
  return devices != nullptr && std::string_view(devices).starts_with("cuda");
}

bool gpus_are_simulated() { return std::getenv("SHMAP_SIM_GPUS") != nullptr; }

std::vector<const char*> executors() {
  return asks_for_gpus() ? std::vector{"inline"} : std::vector{"inline", "async", "seeded:3"};
}

}  // namespace shmap::test
