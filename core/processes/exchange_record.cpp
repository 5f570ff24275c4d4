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
      if (!source.heard) text += ", waits for " + peers_.text(source.peer);
  }
  for (const ExchangeHistory::Done* done : histories_.last(kWritten)) {
    text += fmt::format("\n  ended, begun {:.3f} s ago: number {}, {}", ago(done->begun),
                        done->number, done->label.text());
  }
  if (text.empty()) text = "\n  none";
  return fmt::format("process {}: the collectives between processes that it ran last:{}",
                     peers_.self(), text);
}

void Exchanges::write_record(const char* why) noexcept {
  try {
    const Clock::time_point until = Clock::now() + kPatience;
    std::unique_lock lock(mutex_, std::try_to_lock);
    for (; !lock.owns_lock() && Clock::now() < until; (void)lock.try_lock())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (lock.owns_lock() && !stopped_ && fault_.empty())
      warn_aside(std::string(why) + ". " + record());
  } catch (...) {  // no memory for the text
  }
  wait_for_warnings();
}

}  // namespace shmap
