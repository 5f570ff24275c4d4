// SignalsBlocked: blocks signals while a thread of the library is started.
#pragma once
#include <pthread.h>
#include <signal.h>

namespace shmap {

// While the object lives, the calling thread has all signals blocked; a thread that it starts
// meanwhile inherits this and keeps the signals blocked. The program's handlers thus run on the
// program's threads, never in the middle of a kernel. Not blocked are signals raised by an
// instruction, and those of debuggers and profilers, which must reach the thread concerned.
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
