#include "core/processes/term_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>

#include "core/base/signals_blocked.h"

namespace shmap {
namespace {

// Read by the signal handler; set before the handler is installed.
std::atomic<int> pipe_inlet{-1};
std::atomic<pid_t> owner{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

// SA_RESETHAND has already restored the signal's default action.
void on_term(int signal) {
  const int error = errno;
  const char byte = 0;
  if (owner.load() != getpid() || write(pipe_inlet.load(), &byte, 1) != 1) raise(signal);
  errno = error;
}

}  // namespace

void say_before_term(void (*say)() noexcept) noexcept {
  struct sigaction now = {};
  int ends[2];
  if (owner.load() != 0 || sigaction(SIGTERM, nullptr, &now) != 0 ||
      (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL || pipe2(ends, O_CLOEXEC) != 0)
    return;
  pipe_inlet.store(ends[1]);
  owner.store(getpid());
  try {
    const SignalsBlocked blocked;
    std::thread([say, outlet = ends[0]] {
      char byte;
      ssize_t n;
      while ((n = read(outlet, &byte, 1)) < 0 && errno == EINTR) continue;
      if (n != 1) return;
      say();
      kill(getpid(), SIGTERM);
    }).detach();
  } catch (const std::system_error&) {
    return;  // no thread could be started: the default action stays
  }
  struct sigaction ours = {};
  ours.sa_handler = on_term;
  ours.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGTERM, &ours, nullptr);
}

}  // namespace shmap
