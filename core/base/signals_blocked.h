// SignalsBlocked: for starting threads that no handler of the program should run on.
#pragma once
#include <pthread.h>
#include <signal.h>

namespace shmap {

// While it lives the calling thread has all signals blocked, and a thread that it starts is born
// with them blocked for good: a handler runs on a thread of the program, never in the middle of a
// kernel. But those that an instruction raises, a debugger's and a profiler's among them, come to
// the thread that ran it.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t others;
    sigfillset(&others);
    for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
      sigdelset(&others, raised);
    pthread_sigmask(SIG_SETMASK, &others, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace shmap
