// The exchanges that this process ran last, to answer other processes, to distinguish a late
// message from a wrong one, and to explain why a job ended. Private to Exchanges, whose mutex
// protects the objects.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/processes/exchange_label.h"
#include "core/processes/process_exchange.h"

namespace shmap {

// The exchanges of one space.
class ExchangeHistory {
 public:
  using Clock = std::chrono::steady_clock;
  struct Done {
    std::uint64_t number;
    std::uint32_t round;
    ExchangeLabel label;
    Clock::time_point begun;  // on a coarse clock where an attempt ended the exchange
    std::uint64_t order;      // position among the exchanges of all spaces that have ended
  };

  void remember_begun(const ProcessExchange& exchange, Clock::time_point now);
  void remember_done(const ProcessExchange& exchange, Clock::time_point begun, std::uint64_t order);
  // The exchange of that number and round, if it has ended lately; else null.
  const Done* find_done(std::uint64_t number, std::uint32_t round) const noexcept;
  const std::vector<Done>& done() const noexcept { return done_; }  // in no order

  // The exchange that began last.
  bool has_begun() const noexcept { return label_.op[0] != 0; }
  std::uint64_t latest() const noexcept { return latest_; }
  const ExchangeLabel& label() const noexcept { return label_; }
  Clock::time_point when() const noexcept { return when_; }

 private:
  std::vector<Done> done_;  // the last ones, as a ring buffer
  std::size_t oldest_ = 0;
  std::uint64_t latest_ = 0;
  ExchangeLabel label_;
  Clock::time_point when_;
};

// The histories of all spaces.
class ExchangeHistories {
 public:
  // The history of a space; stays where it is.
  ExchangeHistory& of(std::uint64_t space) { return by_space_[space]; }
  // The same, or null where nothing was asked of the space before.
  const ExchangeHistory* find(std::uint64_t space) const noexcept;
  void remember_done(ExchangeHistory& history, const ProcessExchange& exchange,
                     ExchangeHistory::Clock::time_point begun) {
    history.remember_done(exchange, begun, ++done_count_);
  }
  // The exchanges that ended last, at most `most` of them; the latest first.
  std::vector<const ExchangeHistory::Done*> last(std::size_t most) const;

 private:
  std::unordered_map<std::uint64_t, ExchangeHistory> by_space_;
  std::uint64_t done_count_ = 0;
};

}  // namespace shmap
