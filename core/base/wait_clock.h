// WaitClock: decides when a wait deserves a warning, and when it fails.
#pragma once
#include <chrono>
#include <cstdint>

namespace shmap {

// True if a debugger is attached to this process: deadlines do not expire then.
bool under_debugger() noexcept;

// The clock of one wait. The limits are seconds; 0: never.
class WaitClock {
 public:
  WaitClock(double warn_sec, double timeout_sec) noexcept
      : warn_sec_(warn_sec), timeout_sec_(timeout_sec) {}

  enum class Due : std::uint8_t { nothing, warning, failure };
  // The action that is due now: a warning, once; or a failure, unless a debugger is attached.
  Due look() noexcept;
  double seconds() const noexcept;  // since construction

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const double warn_sec_, timeout_sec_;
  bool warned_ = false;
};

}  // namespace shmap
