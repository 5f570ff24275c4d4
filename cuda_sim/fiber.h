// Fiber: a separate stack for a thread of a kernel that waits.
#pragma once
#include <cstddef>

namespace shmap_sim {

class Fiber {
 public:
  Fiber();  // throws std::bad_alloc
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next resume() call entry(argument) on an empty stack. entry must not return: it ends
  // by a last suspend(). Objects left on the stack are not destroyed.
  void start(void (*entry)(void* argument), void* argument);
  void resume();   // called outside of fibers: runs the fiber until it suspends
  void suspend();  // called inside the fiber: returns to resume()

 private:
  struct Context;
  void prepare(void (*entry)(void*), void* argument);
  void leave_outside();
  void leave_inside();

  Context* context_;
  char* stack_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace shmap_sim
