// Fiber: a stack of its own for a thread of a kernel that waits.
#pragma once
#include <cstddef>

namespace shmap_sim {

class Fiber {
 public:
  Fiber();  // throws std::bad_alloc
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next resume() call entry(argument) on a clean stack. entry must not return: it ends
  // by suspending for good. Whatever was on the stack is forgotten without running destructors.
  void start(void (*entry)(void* argument), void* argument);
  void resume();   // from outside of any fiber: runs it until it suspends
  void suspend();  // from inside of it: returns to resume()

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
