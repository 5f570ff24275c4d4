// The exchanges that are under way, which are found by their places. Private to Exchanges, whose
// mutex protects the object.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/processes/exchange_place.h"
#include "core/processes/process_exchange.h"

namespace shmap {

struct ActiveExchange;

class ActiveExchanges {
 public:
  bool empty() const noexcept { return list_.empty(); }
  std::size_t size() const noexcept { return list_.size(); }
  ActiveExchange& operator[](std::size_t i) const noexcept { return *list_[i]; }
  auto begin() const noexcept { return list_.begin(); }  // of std::unique_ptr<ActiveExchange>
  auto end() const noexcept { return list_.end(); }
  // The same as size(); any thread, without the mutex.
  int count(std::memory_order order) const noexcept { return count_.load(order); }

  ActiveExchange& add(const ProcessExchange& exchange, ExchangeEnd& end);
  // The exchange at that place, or null.
  ActiveExchange* find(const ExchangePlace& place) const noexcept;
  // Another exchange takes the index of the one that is removed.
  void remove(ActiveExchange& active);
  // Removes and returns all exchanges for which no thread copies. find() does not find the others
  // from then on.
  std::vector<std::unique_ptr<ActiveExchange>> take_idle();

 private:
  static constexpr std::size_t kChains = 64;
  static std::size_t chain_of(const ExchangePlace& place) noexcept;

  std::vector<std::unique_ptr<ActiveExchange>> list_;
  std::vector<std::unique_ptr<ActiveExchange>> spare_;  // reused with the capacity of their lists
  ActiveExchange* by_place_[kChains] = {};              // linked lists, by a hash of the place
  std::atomic<int> count_{0};
};

}  // namespace shmap
