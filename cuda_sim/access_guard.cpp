#include "access_guard.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>

namespace shmap_sim {
namespace {

std::atomic<bool> guarded{false};
std::atomic<pthread_t> guarded_thread{};
std::atomic<void (*)()> fault_function{nullptr};
struct sigaction before_segv;
struct sigaction before_bus;

// Makes the thread return from the signal handler into fault_function, on its current stack.
bool redirect(void* context) {
  auto* machine = &static_cast<ucontext_t*>(context)->uc_mcontext;
  const auto target = reinterpret_cast<std::uintptr_t>(fault_function.load());
#if defined(__x86_64__)
  // Below the red zone, and aligned as at a function's entry.
  const auto stack =
      (static_cast<std::uintptr_t>(machine->gregs[REG_RSP]) - 256) & ~std::uintptr_t{15};
  machine->gregs[REG_RSP] = static_cast<greg_t>(stack - 8);
  machine->gregs[REG_RIP] = static_cast<greg_t>(target);
  return true;
#elif defined(__aarch64__)
  machine->sp = (machine->sp - 256) & ~std::uintptr_t{15};
  machine->pc = target;
  return true;
#else
  static_cast<void>(machine);
  static_cast<void>(target);
  return false;
#endif
}

void handle(int signal, siginfo_t* info, void* context) {
  if (guarded.load() && pthread_equal(guarded_thread.load(), pthread_self()) != 0 &&
      redirect(context)) {
    return;
  }
  const struct sigaction& before = signal == SIGBUS ? before_bus : before_segv;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    sigaction(signal, &before, nullptr);  // the access is repeated, and is fatal
  }
}

}  // namespace

AccessGuard::AccessGuard(void (*on_fault)()) {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSEGV, &action, &before_segv) == 0 &&
           sigaction(SIGBUS, &action, &before_bus) == 0;
  }();
  fault_function.store(on_fault);
  guarded_thread.store(pthread_self());
  guarded.store(installed);
}

AccessGuard::~AccessGuard() { guarded.store(false); }

}  // namespace shmap_sim
