// Turns an access of a kernel to memory that is not there into an error of its launch.
#pragma once

namespace shmap_sim {

// While one lives, a SIGSEGV or SIGBUS of its thread makes that thread call on_fault() from where
// it stood; on_fault must not return. Other faults go where they went before. One at a time.
class AccessGuard {
 public:
  explicit AccessGuard(void (*on_fault)());
  ~AccessGuard();
  AccessGuard(const AccessGuard&) = delete;
  AccessGuard& operator=(const AccessGuard&) = delete;
};

}  // namespace shmap_sim
