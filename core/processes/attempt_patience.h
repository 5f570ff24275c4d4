// How often an attempt looks for messages before another thread continues its exchange. Processes
// in step find each other's messages soon. Processes out of step find by an occasional long attempt
// that they are in step again; such an attempt also ends a rhythm in which each process sends just
// after the other has stopped looking. Private to Exchanges, whose mutex protects the object.
#pragma once
#include <algorithm>

namespace shmap {

class AttemptPatience {
 public:
  // Looks without pauses take 0.5 microseconds, those with pauses 2.
  static constexpr int kAtOnce = 150, kLeast = 40, kMost = 190;

  // The number of looks of an attempt that begins now.
  int next() noexcept {
    if (looks_ < kMost && ++impatient_ % kTryAgain == 0) return kMost;
    return looks_;
  }
  void learn(bool ended) noexcept { looks_ = ended ? kMost : std::max(looks_ / 2, kLeast); }

 private:
  static constexpr int kTryAgain = 32;
  int looks_ = kMost;
  unsigned impatient_ = 0;  // number of attempts with fewer looks
};

}  // namespace shmap
