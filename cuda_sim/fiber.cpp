#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace shmap_sim {
namespace {

constexpr std::size_t kStack = std::size_t{256} << 10;

std::size_t page() {
  static const std::size_t size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// Tells a sanitizer which stack is in use.
struct Sanitizer {
#if defined(__SANITIZE_ADDRESS__)
  void start(char* stack, std::size_t bytes) {
    stack_ = stack;
    bytes_ = bytes;
    __asan_unpoison_memory_region(stack, bytes);
    inside_ = nullptr;
  }
  void before_resume() { __sanitizer_start_switch_fiber(&outside_, stack_, bytes_); }
  void after_resume() { __sanitizer_finish_switch_fiber(outside_, nullptr, nullptr); }
  void inside() { __sanitizer_finish_switch_fiber(inside_, &outer_stack_, &outer_bytes_); }
  void before_suspend() { __sanitizer_start_switch_fiber(&inside_, outer_stack_, outer_bytes_); }

 private:
  char* stack_ = nullptr;
  std::size_t bytes_ = 0;
  void* inside_ = nullptr;
  void* outside_ = nullptr;
  const void* outer_stack_ = nullptr;
  std::size_t outer_bytes_ = 0;
#elif defined(__SANITIZE_THREAD__)
  ~Sanitizer() {
    if (fiber_ != nullptr) __tsan_destroy_fiber(fiber_);
  }
  // Making a fiber is slow. Each start leaves a few frames on its stack, so the fiber is
  // replaced from time to time.
  void start(char*, std::size_t) {
    if (starts_++ % 1000 != 0) return;
    if (fiber_ != nullptr) __tsan_destroy_fiber(fiber_);
    fiber_ = __tsan_create_fiber(0);
  }
  void before_resume() {
    outer_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_, 0);
  }
  void after_resume() {}
  void inside() {}
  void before_suspend() { __tsan_switch_to_fiber(outer_, 0); }

 private:
  void* fiber_ = nullptr;
  void* outer_ = nullptr;
  unsigned starts_ = 0;
#else
  void start(char*, std::size_t) {}
  void before_resume() {}
  void after_resume() {}
  void inside() {}
  void before_suspend() {}
#endif
};

}  // namespace

#if defined(__x86_64__)

// Saves the callee-saved registers on the old stack and loads those of the new one. (swapcontext
// would make two system calls each time.)
asm(R"(
.text
.p2align 4
.globl shmap_sim_switch
.hidden shmap_sim_switch
.type shmap_sim_switch, @function
shmap_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size shmap_sim_switch, .-shmap_sim_switch
.globl shmap_sim_enter
.hidden shmap_sim_enter
.type shmap_sim_enter, @function
shmap_sim_enter:
  movq %r12, %rdi
  callq *%r13
  ud2
.size shmap_sim_enter, .-shmap_sim_enter
)");
extern "C" {
void shmap_sim_switch(void** save, void* to) __attribute__((visibility("hidden")));
void shmap_sim_enter() __attribute__((visibility("hidden")));
}

struct Fiber::Context {
  void* inside;   // stack pointer of the fiber while it is suspended
  void* outside;  // stack pointer of the code that resumed it
  Sanitizer sanitizer;
};

void Fiber::prepare(void (*entry)(void*), void* argument) {
  auto* top = reinterpret_cast<std::uintptr_t*>(stack_ + page() + kStack);
  *--top = 0;  // keeps the stack aligned to 16 bytes at the call in shmap_sim_enter
  *--top = 0;
  *--top = reinterpret_cast<std::uintptr_t>(&shmap_sim_enter);
  *--top = 0;                                           // rbp
  *--top = 0;                                           // rbx
  *--top = reinterpret_cast<std::uintptr_t>(argument);  // r12
  *--top = reinterpret_cast<std::uintptr_t>(entry);     // r13
  *--top = 0;                                           // r14
  *--top = 0;                                           // r15
  context_->inside = top;
}

void Fiber::leave_outside() { shmap_sim_switch(&context_->outside, context_->inside); }
void Fiber::leave_inside() { shmap_sim_switch(&context_->inside, context_->outside); }

#else

struct Fiber::Context {
  ucontext_t inside;
  ucontext_t outside;
  void (*entry)(void*);
  void* argument;
  Sanitizer sanitizer;
};

void Fiber::prepare(void (*entry)(void*), void* argument) {
  context_->entry = entry;
  context_->argument = argument;
  getcontext(&context_->inside);
  context_->inside.uc_stack.ss_sp = stack_ + page();
  context_->inside.uc_stack.ss_size = kStack;
  context_->inside.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(context_);
  makecontext(&context_->inside, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
    auto* context = reinterpret_cast<Context*>((static_cast<std::uintptr_t>(high) << 32) |
                                               static_cast<std::uintptr_t>(low));
    context->entry(context->argument);
  }),
              2, static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
}

void Fiber::leave_outside() { swapcontext(&context_->outside, &context_->inside); }
void Fiber::leave_inside() { swapcontext(&context_->inside, &context_->outside); }

#endif

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  context_->sanitizer.start(stack_ + page(), kStack);
  prepare(
      [](void* self) {
        auto* fiber = static_cast<Fiber*>(self);
        fiber->context_->sanitizer.inside();
        fiber->entry_(fiber->argument_);
      },
      this);
}

void Fiber::resume() {
  context_->sanitizer.before_resume();
  leave_outside();
  context_->sanitizer.after_resume();
}

void Fiber::suspend() {
  context_->sanitizer.before_suspend();
  leave_inside();
  context_->sanitizer.inside();
}

Fiber::Fiber() : context_(new Context), stack_(nullptr) {
  void* memory = mmap(nullptr, page() + kStack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    delete context_;
    throw std::bad_alloc();
  }
  stack_ = static_cast<char*>(memory);
  mprotect(stack_, page(), PROT_NONE);  // so that a stack overflow crashes
}

Fiber::~Fiber() {
  munmap(stack_, page() + kStack);
  delete context_;
}

}  // namespace shmap_sim
