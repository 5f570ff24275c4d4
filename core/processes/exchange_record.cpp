// The list of the collectives that Exchanges ran last, to explain why a job ended.
#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "core/processes/active_exchange.h"
#include "core/processes/exchanges.h"
#include "core/processes/warn_aside.h"

namespace shmap {
namespace {

constexpr std::size_t kWritten = 8;
constexpr auto kPatience = std::chrono::milliseconds(200);

}  // namespace

std::string Exchanges::record() const {
  const Clock::time_point now = Clock::now();
  const auto ago = [&](Clock::time_point when) {
    return std::chrono::duration<double>(now - when).count();
  };
  std::string text;
  for (const auto& active : active_) {
    text += fmt::format("\n  under way since {:.3f} s: number {}, {}", ago(active->begun),
                        active->place.number, active->exchange->label.text());
    for (const Active::Source& source : active->sources)
      if (!source.heard)
        text +=
            ", waits for " + peers_.text(source.peer) +
            (peers_.is_gone(source.peer) ? ", which has ended" : peers_.state_text(source.peer));
  }
  for (const ExchangeHistory::Done* done : histories_.last(kWritten)) {
    text += fmt::format("\n  ended, begun {:.3f} s ago: number {}, {}", ago(done->begun),
                        done->number, done->label.text());
  }
  if (text.empty()) text = "\n  none";
  return fmt::format("process {}: the collectives between processes that it ran last:{}",
                     peers_.self(), text);
}

// The death of a process of this node of which the object's thread has not taken notice yet; "" if
// there is none. Of a process that sends its messages through MPI it is not known here whether it
// has said that it leaves.
std::string Exchanges::unnamed_death() {
  if (link_ == nullptr) return "";
  take_from_link();  // a process may have said why it ends
  for (int p = 0; p < peers_.size() && fault_.empty(); ++p) {
    if (p != peers_.self() && link_->reaches(p) && !left_[static_cast<std::size_t>(p)] &&
        peers_.is_gone(p))
      return text_of_death(p);
  }
  return "";
}

void Exchanges::write_record(const char* why) noexcept {
  try {
    const Clock::time_point until = Clock::now() + kPatience;
    std::unique_lock lock(mutex_, std::try_to_lock);
    for (; !lock.owns_lock() && Clock::now() < until; (void)lock.try_lock())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::string text;
    const auto describe = [&](const char* end) {
      if (!stopped_ && fault_.empty()) text = std::string(why) + ". " + record() + end;
    };
    if (lock.owns_lock()) {
      // A launcher that ends the job because a process has died may be faster than the thread that
      // names the dead.
      if (!stopped_ && fault_.empty()) text = unnamed_death();
      if (text.empty()) describe("");
    } else {
      messages_.during_call([&] { describe("\n  a thread of this process is in a call of MPI"); });
    }
    if (!text.empty()) warn_aside(text);
  } catch (...) {  // no memory for the text
  }
  wait_for_warnings();
}

}  // namespace shmap
