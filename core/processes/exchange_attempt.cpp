// Small exchanges with processes of the same node, performed from beginning to end by the thread
// that reaches them: without a list of exchanges under way, another thread, or heap memory.
#include "core/processes/exchange_attempt.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "core/base/fault.h"
#include "core/base/spin_lock.h"
#include "core/processes/exchanges.h"

namespace shmap {

namespace {

static_assert(NodeLink::kBoardBytes >= ExchangeMessage::kInline);
constexpr int kLooksAmongMany = 64;  // before a thread offers its core
constexpr std::chrono::microseconds kMostYielding{100}, kMostForRoom{5};

}  // namespace

std::shared_ptr<Exchanges::Attempt> Exchanges::prepare(const ProcessExchange& exchange) const {
  if (link_ == nullptr) return nullptr;
  auto attempt = std::make_shared<Attempt>();
  attempt->header = Header::of(exchange);
  const auto add_ways = [&](const std::vector<Parcel>& parcels, std::vector<Attempt::Way>& ways) {
    for (std::size_t i = 0; i < parcels.size(); ++i) {
      if (ways.empty() || ways.back().peer != parcels[i].peer)
        ways.push_back({parcels[i].peer, i, i, 0, 0});
      ways.back().last = i + 1;
      ways.back().bytes += parcels[i].bytes;
    }
    return std::ranges::all_of(ways, [&](Attempt::Way& way) {
      way.digest = Message::digest_of(exchange, way.bytes);
      return way.bytes <= Message::kInline && link_->reaches(way.peer);
    });
  };
  if (!add_ways(exchange.sends, attempt->to) || !add_ways(exchange.receives, attempt->from))
    return nullptr;
  const std::vector<Attempt::Way>& to = attempt->to;
  attempt->on_board = to.size() > 1 &&
                      to.front().bytes > static_cast<std::int64_t>(Message::kFrontBytes) &&
                      std::ranges::all_of(to, [&](const Attempt::Way& way) {
                        return std::ranges::equal(Attempt::parcels(exchange.sends, to.front()),
                                                  Attempt::parcels(exchange.sends, way),
                                                  [](const Parcel& a, const Parcel& b) {
                                                    return a.data == b.data && a.bytes == b.bytes;
                                                  });
                      });
  if (exchange.work != nullptr) {
    std::int64_t bytes = 0;
    for (Attempt::Way& way : attempt->from) {
      way.kept = bytes;
      bytes += (way.bytes + 63) / 64 * 64;
    }
    attempt->kept = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));
    attempt->addresses.resize(exchange.receives.size());
  }
  return attempt;
}

bool Exchanges::has_room(const Attempt& attempt) noexcept {
  return (!attempt.on_board || link_->board_has_room()) &&
         std::ranges::all_of(attempt.to, [&](const Attempt::Way& way) {
           const std::int64_t behind = attempt.on_board ? 0 : way.bytes;
           return link_->has_room(way.peer, sizeof(Header) + static_cast<std::size_t>(behind));
         });
}

std::int64_t Exchanges::copy_parcels(std::span<const Parcel> parcels, std::byte* to) noexcept {
  std::int64_t bytes = 0;
  for (const Parcel& parcel : parcels) {
    if (parcel.bytes != 0)
      std::memcpy(to + bytes, parcel.data, static_cast<std::size_t>(parcel.bytes));
    bytes += parcel.bytes;
  }
  return bytes;
}

const std::byte* Exchanges::on_board(int from, const Header& header) const noexcept {
  std::uint32_t place = 0;
  std::memcpy(&place, header.front, sizeof place);
  return link_->board_of(from, place);
}

// Sends all messages, or none if one of them has no room.
bool Exchanges::send_at_once(const ProcessExchange& exchange, Attempt& attempt) {
  if (!has_room(attempt)) return false;
  Header& header = attempt.header;
  header.number = exchange.number;
  const std::span<const std::byte> head = header.as_bytes();
  std::uint32_t place = 0;
  if (attempt.on_board) {
    place = link_->next_on_board();
    copy_parcels(Attempt::parcels(exchange.sends, attempt.to.front()), link_->board(place));
    header.kind = Kind::on_board;
    std::memcpy(header.front, &place, sizeof place);
  }
  for (const Attempt::Way& way : attempt.to) {
    header.digest = way.digest;
    header.bytes = way.bytes;
    const std::span<const Parcel> parcels = Attempt::parcels(exchange.sends, way);
    if (attempt.on_board) {
      link_->send(way.peer, head, {});
      link_->told_of_board(place, way.peer);
    } else if (header.in_front()) {
      copy_parcels(parcels, header.front);
      link_->send(way.peer, head, {});
    } else if (parcels.size() == 1) {
      link_->send(way.peer, head, {parcels[0].data, static_cast<std::size_t>(way.bytes)});
    } else {
      alignas(8) std::byte body[Message::kInline];
      copy_parcels(parcels, body);
      link_->send(way.peer, head, {body, static_cast<std::size_t>(way.bytes)});
    }
  }
  return true;
}

bool Exchanges::Attempt::take(const ProcessExchange& exchange, Way& way, const Message& message,
                              const std::byte* on_board) noexcept {
  const Header& header = message.header();
  if (header.kind != (on_board != nullptr ? Kind::on_board : Kind::exchange) ||
      header.number != exchange.number || header.round != exchange.round ||
      header.digest != way.digest)
    return false;
  const std::byte* data = on_board;
  if (data == nullptr)
    data = way.bytes <= static_cast<std::int64_t>(Message::kFrontBytes)
               ? header.front
               : message.bytes.data() + sizeof(Header);
  for (std::size_t i = way.first; i < way.last; ++i) {
    const Parcel& parcel = exchange.receives[i];
    if (exchange.work != nullptr) addresses[i] = data;
    if (parcel.data != nullptr && parcel.bytes != 0)
      std::memcpy(parcel.data, data, std::size_t(parcel.bytes));
    data += parcel.bytes;
  }
  way.heard = true;
  return true;
}

void Exchanges::Attempt::keep(Way& way) noexcept {
  const std::byte* const begin = addresses[way.first];
  std::byte* const to = kept.get() + way.kept;
  if (way.bytes != 0) std::memcpy(to, begin, static_cast<std::size_t>(way.bytes));
  for (std::size_t i = way.first; i < way.last; ++i) addresses[i] = to + (addresses[i] - begin);
}

// Copies the parcels out of their rings, because the exchange takes longer than an attempt.
void Exchanges::leave_rings(Attempt& attempt) noexcept {
  for (Attempt::Way& way : attempt.from) {
    if (!std::exchange(way.in_ring, false)) continue;
    attempt.keep(way);
    link_->give_room(way.peer);
  }
}

// Does the exchange's work on its parcels, most of which still lie in their rings. False where the
// work throws: start() then does the work again, and reports the exception.
bool Exchanges::work_at_once(const ProcessExchange& exchange, Attempt& attempt) noexcept {
  try {
    const int parts = exchange.work->parts();
    for (int part = 0; part < parts; ++part) exchange.work->run(part, attempt.addresses.data());
  } catch (...) {
    return false;
  }
  for (Attempt::Way& way : attempt.from)
    if (std::exchange(way.in_ring, false)) link_->give_room(way.peer);
  return true;
}

// Takes the messages that have come. False if another message came first: that message stays in its
// ring, and start() handles it.
bool Exchanges::take_at_once(const ProcessExchange& exchange, Attempt& attempt) noexcept {
  for (Attempt::Way& way : attempt.from) {
    if (way.heard) continue;
    const Message message{link_->first_of(way.peer)};
    if (message.bytes.empty()) continue;
    const Header& header = message.header();
    const std::byte* const elsewhere =
        header.kind == Kind::on_board ? on_board(way.peer, header) : nullptr;
    if (!attempt.take(exchange, way, message, elsewhere)) return false;
    way.in_ring = exchange.work != nullptr;
    if (way.in_ring)
      link_->keep_first();
    else
      link_->drop_first();
    --attempt.awaited;
  }
  return true;
}

// For processes that share cores: true if all processes whose messages are awaited run
// on other cores. A process on this core cannot send before this thread gives the core
// up, and a process that has offered its core to others mostly waits for a message
// itself.
bool Exchanges::may_come_soon(const Attempt& attempt) const noexcept {
  return std::ranges::all_of(attempt.from, [&](const Attempt::Way& way) {
    return way.heard || link_->runs_elsewhere(way.peer);
  });
}

bool Exchanges::take_early(const ProcessExchange& exchange, Attempt& attempt) {
  const Place place{exchange.space, exchange.number, exchange.round};
  for (auto it = early_.lower_bound({place, -1}); it != early_.end() && it->first.first == place;
       ++it) {
    const int peer = it->first.second;
    if (std::ranges::none_of(attempt.from, [&](const auto& way) { return way.peer == peer; }))
      return false;
  }
  for (Attempt::Way& way : attempt.from) {
    if (way.heard) continue;
    const auto early = early_.find({place, way.peer});
    if (early == early_.end()) continue;
    if (!attempt.take(exchange, way, {early->second})) return false;
    if (exchange.work != nullptr) attempt.keep(way);
    early_.erase(early);
    --attempt.awaited;
  }
  return true;
}

Exchanges::Clock::time_point Exchanges::coarse_now() noexcept {
  timespec now{};
  if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) != 0) return Clock::now();
  return Clock::time_point(std::chrono::seconds(now.tv_sec) +
                           std::chrono::nanoseconds(now.tv_nsec));
}

// Lets another process run on this core, which that process may need to reach the exchange. False
// if this thread has offered its core for long enough, or something has failed meanwhile.
bool Exchanges::offer_core(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
  link_->set_core(NodeLink::kAway);
  lock.unlock();
  sched_yield();
  lock.lock();
  link_->set_core(sched_getcpu());
  return !stopped_ && fault_.empty() && Clock::now() < until;
}

// Waits until the other processes have taken messages out of their rings. A process that needs
// nothing from the others runs ahead until the rings are full; waiting for room then takes less
// time than a task would. (Cold: kept apart from the code for rings with room.)
[[gnu::cold]] bool Exchanges::wait_for_room(std::unique_lock<std::mutex>& lock,
                                            const Attempt& attempt) {
  const auto until = Clock::now() + (crowded_ ? kMostYielding : kMostForRoom);
  do {
    // Each look takes the cache line with the receiver's position away from the receiver, which
    // writes it. After a pause of about a microsecond there is room for several messages.
    for (int i = 0; i < 64; ++i) cpu_relax();
    if (has_room(attempt)) return true;
  } while (crowded_ ? offer_core(lock, until) : Clock::now() < until);
  return false;
}

bool Exchanges::attempt(const ProcessExchange& exchange, Attempt& attempt) noexcept {
  std::unique_lock lock(mutex_, std::try_to_lock);
  // start() handles all unusual states, and has the fault points.
  if (!lock.owns_lock() || stopped_ || !fault_.empty() || any_left_ || fault::armed()) return false;
  if (!skipped_.empty() &&
      skipped_.find({exchange.space, exchange.number, exchange.round}) != nullptr)
    return false;
  bool ended = false;
  try {
    ended = make_attempt(lock, exchange, attempt);
  } catch (...) {  // no memory for the history
  }
  if (!ended && exchange.work != nullptr) leave_rings(attempt);
  return ended;
}

bool Exchanges::make_attempt(std::unique_lock<std::mutex>& lock, const ProcessExchange& exchange,
                             Attempt& attempt) {
  if (!send_at_once(exchange, attempt) &&
      !(wait_for_room(lock, attempt) && send_at_once(exchange, attempt)))
    return false;
  attempt.begun = true;
  attempt.awaited = attempt.from.size();
  for (Attempt::Way& way : attempt.from) way.heard = false;
  for (const OwnCopy& own : exchange.copies)
    if (own.bytes != 0) std::memcpy(own.to, own.from, static_cast<std::size_t>(own.bytes));
  const Clock::time_point begun = coarse_now();
  if (crowded_) link_->set_core(sched_getcpu());
  if (attempt.history == nullptr) attempt.history = &histories_.of(exchange.space);
  attempt.history->remember_begun(exchange, begun);
  // If nothing else is under way, the object's own thread leaves the next messages to this thread,
  // as it does while a thread waits.
  if (active_.empty() && !looked_.load(std::memory_order_relaxed))
    looked_.store(true, std::memory_order_relaxed);
  bool goes_on = early_.empty() || take_early(exchange, attempt);
  const int most = patience_.next();
  Clock::time_point until{};
  for (int turns = 0; goes_on && attempt.awaited != 0; ++turns) {
    goes_on = take_at_once(exchange, attempt) && turns < most;
    if (!goes_on || attempt.awaited == 0) break;
    if (crowded_) {
      // A message that a process on another core is sending arrives sooner than this thread would
      // get its core back after offering it.
      for (int looks = 0;
           looks < kLooksAmongMany && goes_on && attempt.awaited != 0 && may_come_soon(attempt);
           ++looks) {
        cpu_relax();
        goes_on = take_at_once(exchange, attempt);
      }
      if (!goes_on || attempt.awaited == 0) break;
      if (turns == 0) until = Clock::now() + kMostYielding * most / AttemptPatience::kMost;
      goes_on = offer_core(lock, until);
      if (goes_on && !early_.empty()) goes_on = take_early(exchange, attempt);
    } else if (turns >= AttemptPatience::kAtOnce) {
      cpu_relax();
    }
  }
  patience_.learn(attempt.awaited == 0);
  if (attempt.awaited != 0 || (exchange.work != nullptr && !work_at_once(exchange, attempt))) {
    if (crowded_) link_->set_core(NodeLink::kAway);
    return false;
  }
  attempt.begun = false;
  histories_.remember_done(*attempt.history, exchange, begun);
  at_once_.store(at_once_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return true;
}

}  // namespace shmap
