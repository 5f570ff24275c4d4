#include "core/processes/exchanges.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/base/fault.h"
#include "core/base/signals_blocked.h"
#include "core/processes/active_exchange.h"
#include "core/processes/exchange_attempt.h"

namespace shmap {

Exchanges::Exchanges(MessagePassing& messages, Peers& peers, NodeLink* link, double warn_sec,
                     double timeout_sec)
    : messages_(messages),
      peers_(peers),
      link_(link),
      listens_(link == nullptr || !link->reaches_all()),
      warn_sec_(warn_sec),
      timeout_sec_(timeout_sec),
      values_(peers),
      meshes_(peers),
      next_tag_(static_cast<std::size_t>(peers.size()), 0),
      left_(static_cast<std::size_t>(peers.size()), 0),
      crowded_(peers.crowded()) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listens_)
    inboxes_.open(messages_, std::int64_t{sizeof(Header)} + Message::kInline, Message::kTag);
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { thread_main(); });
}

// ------------------------------------------------------------------------------------- starting

void Exchanges::start(const ProcessExchange& exchange, ExchangeEnd& end,
                      Attempt* attempt) noexcept {
  EndedExchanges ended;
  bool waits = false;
  if (attempt == nullptr) shorten_naps();
  try {
    std::string injected;
    try {
      fault::point("send", peers_.self());
    } catch (const std::exception& e) {
      injected = peers_.text(peers_.self()) + " cannot send: " + e.what();
    }
    std::unique_lock lock(mutex_);
    if (!injected.empty()) fail(injected, true);
    if (!fault_.empty() || stopped_) {
      ended.push(&end, error_for(exchange.label, exchange.number));
    } else {
      Active& active = active_.add(exchange, end);
      try {
        begin(active, ended, attempt);
        if (fault_.empty()) move_on(lock, ended, Take::what_is_needed);
      } catch (const std::exception& e) {
        fail(e.what(), true);
      }
    }
    if (!fault_.empty()) end_all(ended);
    waits = !active_.empty();
  } catch (...) {
    return end.exchanged(std::current_exception());  // no memory to begin the exchange
  }
  if (!ended.empty()) taken_by_others_.fetch_add(1, std::memory_order_relaxed);
  ended.tell();
  // A nap ends soon by itself, and a message of the link wakes the thread without help.
  if (!waits || !needs_looks_.load(std::memory_order_relaxed)) return;
  // Stores the flag again, in one order with the accesses of rest(): either this thread sees that
  // the exchange thread sleeps, or that thread sees the flag. If another thread's look has cleared
  // the flag in between, the next look clears it again.
  needs_looks_.store(true, std::memory_order_seq_cst);
  wake_thread(Rest::sleep);
}

void Exchanges::run(const ProcessExchange& exchange) {
  struct Waiter final : ExchangeEnd {
    std::atomic<bool> done{false};
    std::exception_ptr error;
    void exchanged(std::exception_ptr e) noexcept override {
      error = std::move(e);
      done.store(true, std::memory_order_release);
    }
  } waiter;
  start(exchange, waiter);
  looking(detail::Looking::begins);
  for (int turns = 0; !waiter.done.load(std::memory_order_acquire); ++turns) {
    poke();
    if (turns > 200)
      usleep(turns > 2000 ? 500 : 20);
    else
      sched_yield();
  }
  looking(detail::Looking::ends);
  if (waiter.error != nullptr) std::rethrow_exception(waiter.error);
}

void Exchanges::begin(Active& active, EndedExchanges& ended, Attempt* attempt) {
  const ProcessExchange& exchange = *active.exchange;
  active.begun = Clock::now();
  const std::vector<Parcel>& all = active.exchange->receives;
  for (std::size_t i = 0; i < all.size();) {
    Active::Source source{all[i].peer, false, i, i, 0, 0, false, {}};
    for (; source.last < all.size() && all[source.last].peer == source.peer; ++source.last)
      source.bytes += all[source.last].bytes;
    i = source.last;
    active.sources.push_back(std::move(source));
  }
  active.awaited = active.sources.size();
  if (const std::string* why = skipped_.find(active.place)) return fail(*why, true);
  const bool sent = attempt != nullptr && std::exchange(attempt->begun, false);
  if (sent) {
    for (std::size_t i = 0; i < active.sources.size(); ++i)
      active.sources[i].heard = attempt->from[i].heard;
    active.awaited = attempt->awaited;
    if (exchange.work != nullptr) active.addresses = attempt->addresses;
  } else {
    histories_.of(exchange.space).remember_begun(exchange, active.begun);
    if (exchange.work != nullptr) active.addresses.assign(all.size(), nullptr);
    send_parts(active);
    list_copies(active);
  }
  for (Active::Source& source : active.sources) {
    if (source.heard) continue;
    const auto early = early_.find({active.place, source.peer});
    if (early != early_.end()) {
      const Bytes bytes = std::move(early->second);
      early_.erase(early);
      accept(active, source.peer, {bytes});
    } else if (left_[static_cast<std::size_t>(source.peer)]) {
      fail(peers_.text(source.peer) +
               " has left the job: its program has ended, with the exit code 0, before "
               "collective number " +
               std::to_string(active.place.number) + " of the mesh, " +
               active.exchange->label.text(),
           true);
    }
    if (!fault_.empty()) return;
  }
  // Messages that came early for this exchange, but from processes that are none of its sources:
  // accept() refuses them.
  const auto other = early_.lower_bound({active.place, -1});
  if (other != early_.end() && other->first.first == active.place) {
    const Bytes bytes = other->second;
    return accept(active, other->first.second, {bytes});
  }
  conclude(active, ended);
}

// Returns whether any message moved.
bool Exchanges::progress(EndedExchanges& ended, Take take) {
  bool any = take_messages(take);
  any = letters_.send(link_) || any;
  for (std::size_t i = 0; i < active_.size() && fault_.empty();) {
    Active& active = active_[i];
    const std::size_t before = active.sends.size() + active.receives.size();
    active.drop_ended(messages_);
    any = any || active.sends.size() + active.receives.size() != before;
    any = active.letters.send(link_) || any;
    const std::size_t count = active_.size();
    conclude(active, ended);
    if (active_.size() == count) ++i;
  }
  outgoing_.drop_sent(messages_);
  return any;
}

void Exchanges::conclude(Active& active, EndedExchanges& ended) {
  std::erase_if(active.sends, [&](MessagePassing::Request& request) {
    return request == nullptr || messages_.test(request, nullptr);
  });
  if (active.awaited != 0 || !active.sends.empty() || !active.receives.empty() ||
      !active.letters.empty() || active.copies != 0)
    return;
  if (active.exchange->work != nullptr && begin_work(active)) return;
  if (active.lent != 0) return;
  if (active.receives_parcels && !senders_are_well(active)) return;
  histories_.remember_done(histories_.of(active.place.space), *active.exchange, active.begun);
  ended.push(active.end, nullptr);
  active_.remove(active);
}

detail::LookAgain Exchanges::poke() noexcept {
  if (active_.count(std::memory_order_relaxed) == 0) return detail::LookAgain::no_reason;
  const auto again = crowded_ ? detail::LookAgain::yielding : detail::LookAgain::soon;
  if (!listens_ && !needs_looks_.load(std::memory_order_relaxed) && !link_->any()) return again;
  EndedExchanges ended;
  bool moved = false;
  {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || stopped_) return again;
    moved = move_on(lock, ended, Take::what_is_needed);
  }
  if (!ended.empty()) taken_by_others_.fetch_add(1, std::memory_order_relaxed);
  ended.tell();
  return moved ? detail::LookAgain::moved : again;
}

// Returns whether any message moved.
bool Exchanges::move_on(std::unique_lock<std::mutex>& lock, EndedExchanges& ended,
                        Take take) noexcept {
  bool any = false;
  try {
    any = progress(ended, take);
    any = copy_some(lock, ended) || any;
    if (!fault_.empty()) end_all(ended);
  } catch (const std::exception& e) {
    fail(e.what(), true);
    end_all(ended);
  }
  bool needs = listens_ ? !active_.empty() : !letters_.empty() || !copies_.empty();
  needs = needs || !unfinished_.empty();
  for (std::size_t i = 0; i < active_.size() && !needs; ++i) {
    const Active& active = active_[i];
    needs = !active.sends.empty() || !active.receives.empty() || !active.letters.empty();
  }
  needs_looks_.store(needs, std::memory_order_relaxed);
  const bool room = needs && !active_.empty() && !active_[0].letters.empty() && !awaits_messages();
  if (awaits_room_.load(std::memory_order_relaxed) != room)
    awaits_room_.store(room, std::memory_order_relaxed);
  return any;
}

}  // namespace shmap
