#include "core/processes/active_exchanges.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/processes/active_exchange.h"

namespace shmap {

std::size_t ActiveExchanges::chain_of(const ExchangePlace& place) noexcept {
  return (place.space ^ (place.number * 4 + place.round)) % kChains;
}

ActiveExchange& ActiveExchanges::add(const ProcessExchange& exchange, ExchangeEnd& end) {
  if (spare_.empty()) spare_.push_back(std::make_unique<ActiveExchange>());
  list_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  ActiveExchange& active = *list_.back();
  active.exchange = &exchange;
  active.end = &end;
  active.place = {exchange.space, exchange.number, exchange.round};
  ActiveExchange*& chain = by_place_[chain_of(active.place)];
  active.next_by_place = std::exchange(chain, &active);
  count_.fetch_add(1, std::memory_order_relaxed);
  return active;
}

ActiveExchange* ActiveExchanges::find(const ExchangePlace& place) const noexcept {
  ActiveExchange* active = by_place_[chain_of(place)];
  while (active != nullptr && active->place != place) active = active->next_by_place;
  return active;
}

void ActiveExchanges::remove(ActiveExchange& active) {
  ActiveExchange** at = &by_place_[chain_of(active.place)];
  while (*at != &active) at = &(*at)->next_by_place;
  *at = active.next_by_place;
  const auto it = std::ranges::find_if(list_, [&](const auto& a) { return a.get() == &active; });
  std::swap(*it, list_.back());
  active.reset();
  spare_.push_back(std::move(list_.back()));
  list_.pop_back();
  count_.fetch_sub(1, std::memory_order_relaxed);
}

std::vector<std::unique_ptr<ActiveExchange>> ActiveExchanges::take_idle() {
  std::vector<std::unique_ptr<ActiveExchange>> idle, busy;
  for (auto& active : list_) (active->copying != 0 ? busy : idle).push_back(std::move(active));
  list_ = std::move(busy);
  std::fill(std::begin(by_place_), std::end(by_place_), nullptr);
  count_.store(static_cast<int>(list_.size()), std::memory_order_relaxed);
  return idle;
}

}  // namespace shmap
