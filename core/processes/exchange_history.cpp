#include "core/processes/exchange_history.h"

#include <algorithm>

namespace shmap {
namespace {

constexpr std::size_t kRemembered = 256;  // exchanges of a space

}  // namespace

void ExchangeHistory::remember_begun(const ProcessExchange& exchange, Clock::time_point now) {
  if (exchange.number < latest_) return;
  latest_ = exchange.number;
  label_ = exchange.label;
  when_ = now;
}

void ExchangeHistory::remember_done(const ProcessExchange& exchange, Clock::time_point begun,
                                    std::uint64_t order) {
  if (done_.size() < kRemembered) {
    done_.push_back({exchange.number, exchange.round, exchange.label, begun, order});
    return;
  }
  Done& done = done_[oldest_];
  done.number = exchange.number;
  done.round = exchange.round;
  done.label = exchange.label;
  done.begun = begun;
  done.order = order;
  oldest_ = (oldest_ + 1) % kRemembered;
}

const ExchangeHistory::Done* ExchangeHistory::find_done(std::uint64_t number,
                                                        std::uint32_t round) const noexcept {
  if (number > latest_) return nullptr;  // mostly a message that comes early
  const auto it = std::ranges::find_if(
      done_, [&](const Done& done) { return done.number == number && done.round == round; });
  return it == done_.end() ? nullptr : &*it;
}

const ExchangeHistory* ExchangeHistories::find(std::uint64_t space) const noexcept {
  const auto it = by_space_.find(space);
  return it == by_space_.end() ? nullptr : &it->second;
}

std::vector<const ExchangeHistory::Done*> ExchangeHistories::last(std::size_t most) const {
  std::vector<const ExchangeHistory::Done*> done;
  for (const auto& [space, history] : by_space_)
    for (const ExchangeHistory::Done& d : history.done()) done.push_back(&d);
  const auto end = done.begin() + static_cast<std::ptrdiff_t>(std::min(most, done.size()));
  std::partial_sort(done.begin(), end, done.end(),
                    [](const auto* a, const auto* b) { return a->order > b->order; });
  done.erase(end, done.end());
  return done;
}

}  // namespace shmap
