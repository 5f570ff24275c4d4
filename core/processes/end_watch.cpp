#include "core/processes/end_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <system_error>

#include "core/base/signals_blocked.h"
#include "core/base/wait_clock.h"
#include "core/base/warning.h"

namespace shmap {

EndWatch::EndWatch(Peers& peers, double warn_sec, double timeout_sec,
                   bool (*over)() noexcept) noexcept
    : peers_(peers), warn_sec_(warn_sec), timeout_sec_(timeout_sec), is_over_(over) {
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {
    return;  // no thread could be started
  }
}

EndWatch::~EndWatch() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool EndWatch::over_after(double sec) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(sec), [&] { return over_; }) ||
         (is_over_ != nullptr && is_over_());
}

std::string EndWatch::text(double sec) const {
  std::string text = fmt::format(
      "{}process {} and {}, and MPI_Finalize waits since {:.1f} s",
      is_over_ == nullptr ? "the programs of " : "", peers_.self(),
      is_over_ == nullptr ? "of all others have ended" : "all others have said that they end", sec);
  std::string who;
  for (int p = 0; p < peers_.size(); ++p) {
    if (p == peers_.self() || !peers_.on_this_node(p)) continue;
    if (peers_.is_gone(p))
      who += "\n  " + peers_.text(p) + " is gone";
    else if (const std::string state = peers_.state_text(p); !state.empty())
      who += "\n  " + peers_.text(p) + " has not ended" + state;
  }
  if (who.empty())
    who =
        "\n  the processes of this node are all there: one of another node, or the launcher, "
        "keeps it waiting";
  return text + ":" + who;
}

void EndWatch::watch() noexcept {
  try {
    WaitClock clock(warn_sec_, timeout_sec_);
    while (!over_after(0.1)) {
      const WaitClock::Due due = clock.look();
      if (due == WaitClock::Due::nothing) continue;
      const std::string what = text(clock.seconds());
      if (due == WaitClock::Due::warning) {
        warn(what + "\n  (SHMAP_COLLECTIVE_WARN_SEC)");
        continue;
      }
      warn(what + "\n  Giving up (SHMAP_COLLECTIVE_TIMEOUT_SEC)");
      _exit(1);
    }
  } catch (...) {
    return;  // no memory for the watch
  }
}

}  // namespace shmap
