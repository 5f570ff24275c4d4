// WaitClock: decides when a wait deserves a warning, and when it fails.
#pragma once
#include <chrono>
#include <cstdint>

namespace shmap {

// True if a debugger is attached to this process: deadlines do not expire then.
bool under_debugger() noexcept;

// The most that the time between two looks of a waiting thread counts, which looks more often. More
// time passes only while the whole process is stopped (SIGSTOP, a suspended job or machine), and
// then nobody can be blamed for it.
constexpr std::chrono::seconds kMostBetweenLooks{1};

// The clock of one wait. The limits are seconds; 0: never. The waiting thread looks at the clock
// more often than every kMostBetweenLooks.
class WaitClock {
 public:
  WaitClock(double warn_sec, double timeout_sec) noexcept
      : warn_sec_(warn_sec), timeout_sec_(timeout_sec) {}

  enum class Due : std::uint8_t { nothing, warning, failure };
  // The action that is due now: a warning, once; or a failure, unless a debugger is attached.
  Due look() noexcept;
  // The two halves of look(): counts the time since the last look, and says what is due after `sec`
  // seconds.
  void advance() noexcept;
  Due due_after(double sec) noexcept;
  double seconds() const noexcept { return seconds_; }  // counted since construction

 private:
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  double seconds_ = 0;
  const double warn_sec_, timeout_sec_;
  bool warned_ = false;
};

}  // namespace shmap
