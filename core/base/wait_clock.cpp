#include "core/base/wait_clock.h"

#include <algorithm>
#include <cstdio>

namespace shmap {

bool under_debugger() noexcept {
  std::FILE* status = std::fopen("/proc/self/status", "re");
  if (status == nullptr) return false;
  char line[256];
  bool traced = false;
  while (std::fgets(line, sizeof line, status) != nullptr) {
    int pid = 0;
    if (std::sscanf(line, "TracerPid: %d", &pid) == 1) traced = pid != 0;
  }
  std::fclose(status);
  return traced;
}

void WaitClock::advance() noexcept {
  const auto now = std::chrono::steady_clock::now();
  seconds_ += std::min(std::chrono::duration<double>(now - looked_),
                       std::chrono::duration<double>(kMostBetweenLooks))
                  .count();
  looked_ = now;
}

WaitClock::Due WaitClock::look() noexcept {
  advance();
  return due_after(seconds_);
}

WaitClock::Due WaitClock::due_after(double sec) noexcept {
  if (timeout_sec_ > 0 && sec > timeout_sec_ && !under_debugger()) return Due::failure;
  if (warned_ || warn_sec_ <= 0 || sec <= warn_sec_) return Due::nothing;
  warned_ = true;
  return Due::warning;
}

}  // namespace shmap
