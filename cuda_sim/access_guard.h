// Turns an access of a kernel to unmapped memory into an error of the kernel's launch.
#pragma once

namespace shmap_sim {

// While an object lives, a SIGSEGV or SIGBUS of its thread calls on_fault() on that thread;
// on_fault must not return. Other signals go to their previous handlers. One object at a time.
class AccessGuard {
 public:
  explicit AccessGuard(void (*on_fault)());
  ~AccessGuard();
  AccessGuard(const AccessGuard&) = delete;
  AccessGuard& operator=(const AccessGuard&) = delete;
};

}  // namespace shmap_sim
