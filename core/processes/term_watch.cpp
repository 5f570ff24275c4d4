#include "core/processes/term_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>
#include <thread>

#include "core/base/signals_blocked.h"

namespace shmap {
namespace {

// How long `say` may take before a further signal ends the process.
constexpr int64_t kSayMilliseconds = 1000;

// Read by the signal handler; set before the handler is installed.
std::atomic<int> pipe_inlet{-1};
std::atomic<pid_t> owner{0};
std::atomic<int64_t> first_came{0};  // in milliseconds of CLOCK_MONOTONIC; 0: none has come
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

// Calls nothing but what signal-safety(7) allows.
void on_term(int number) {
  const int error = errno;
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t now = int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
  int64_t first = 0;
  const char byte = 0;
  const bool is_said = owner.load() == getpid() && (first_came.compare_exchange_strong(first, now)
                                                        ? write(pipe_inlet.load(), &byte, 1) == 1
                                                        : now - first < kSayMilliseconds);
  if (!is_said) {
    signal(number, SIG_DFL);
    raise(number);
  }
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
      signal(SIGTERM, SIG_DFL);
      kill(getpid(), SIGTERM);
    }).detach();
  } catch (const std::system_error&) {
    return;  // no thread could be started: the default action stays
  }
  struct sigaction ours = {};
  ours.sa_handler = on_term;
  ours.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &ours, nullptr);
}

}  // namespace shmap
