// The threads that handle messages of other processes: a thread that waits for a message, or, where
// no thread waits, the thread of Exchanges. Each continues what the other leaves undone.
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <utility>

#include "core/base/wait_clock.h"
#include "core/processes/exchanges.h"
#include "core/processes/start_watch.h"

namespace shmap {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Messages that come within a nap after the last wait are left to the next wait.
constexpr int kNapUs = 200;
constexpr int kNapOfManyUs = 1000;  // where processes share cores, since naps take time from them
constexpr int kLongNap = 10;        // the length of a long nap, in short naps
constexpr int kShortNaps = 50;      // the number of short naps before naps are long again
constexpr int kSleepUs = 10'000;
// The cost of falling asleep and waking up; the next message often comes sooner.
constexpr microseconds kLinger{20};

}  // namespace

Exchanges::Turns Exchanges::turns() const noexcept {
  const std::int64_t at_once = at_once_.load();
  return {taken_by_thread_.load(),
          taken_by_others_.load() + at_once,
          at_once,
          wakes_.load(),
          hand_overs_.load(),
          sleeps_.load()};
}

void Exchanges::looking(detail::Looking change) noexcept {
  using detail::Looking;
  switch (change) {
    case Looking::begins:
      lookers_.fetch_add(1, std::memory_order_seq_cst);
      if (link_ != nullptr) link_->want_bell(false);
      return;
    case Looking::ends:
      looked_.store(true, std::memory_order_relaxed);
      if (lookers_.fetch_sub(1, std::memory_order_seq_cst) == 1) want_bell_again();
      return;
    case Looking::ends_and_hands_over:
      if (lookers_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
      want_bell_again();
      break;
    case Looking::hands_over:
      if (active_.count(std::memory_order_relaxed) == 0) return;
      if (lookers_.load(std::memory_order_seq_cst) != 0) return;
      break;
  }
  looked_.store(false, std::memory_order_seq_cst);
  if (active_.count(std::memory_order_relaxed) == 0) return;
  hand_overs_.fetch_add(1, std::memory_order_relaxed);
  wake_thread(Rest::nap);
}

// Asks for the bell again if this object's thread went to sleep before a thread looked.
void Exchanges::want_bell_again() noexcept {
  if (link_ == nullptr || rest_.load(std::memory_order_seq_cst) != Rest::sleep) return;
  link_->want_bell(true);
  if (link_->any()) wake_thread(Rest::sleep);
}

bool Exchanges::left_to_others() noexcept {
  return looked_.exchange(false, std::memory_order_seq_cst) ||
         lookers_.load(std::memory_order_seq_cst) != 0;
}

// Wakes the thread if it rests as deeply as `from` or more deeply.
void Exchanges::wake_thread(Rest from) noexcept {
  Rest rest = rest_.load(std::memory_order_seq_cst);
  if (rest < from || rest == Rest::none) return;
  if (!rest_.compare_exchange_strong(rest, Rest::none)) return;
  wakes_.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = write(wake_, &one, sizeof one);
}

void Exchanges::shorten_naps() noexcept {
  if (short_naps_.load(std::memory_order_relaxed) != kShortNaps)
    short_naps_.store(kShortNaps, std::memory_order_relaxed);
  if (rest_.load(std::memory_order_relaxed) == Rest::long_nap) wake_thread(Rest::long_nap);
}

Exchanges::Rest Exchanges::next_nap() noexcept {
  const int naps = short_naps_.load(std::memory_order_relaxed);
  if (naps == 0) return Rest::long_nap;
  short_naps_.store(naps - 1, std::memory_order_relaxed);
  return Rest::nap;
}

// Returns whether a process of this node has died meanwhile.
bool Exchanges::rest(Rest how) noexcept {
  int at_most_us = kSleepUs;
  if (how != Rest::sleep)
    at_most_us = (crowded_ ? kNapOfManyUs : kNapUs) * (how == Rest::long_nap ? kLongNap : 1);
  if (how == Rest::sleep) sleeps_.fetch_add(1, std::memory_order_relaxed);
  rest_.store(how, std::memory_order_seq_cst);
  bool goes = !stop_.load();
  if (how != Rest::sleep) {
    if (link_ != nullptr) link_->want_bell(false);
    // Either this thread sees that the last waiting thread has handed over, or that thread sees the
    // nap.
    goes = goes && (lookers_.load(std::memory_order_seq_cst) != 0 ||
                    looked_.load(std::memory_order_seq_cst) ||
                    active_.count(std::memory_order_seq_cst) == 0);
  } else if (link_ != nullptr) {
    // Either a sender sees that the bell is wanted, or this thread sees the message. If another
    // thread has begun to look meanwhile, the bell is not wanted: the sleep has a time limit.
    link_->want_bell(true);
    goes = goes && !link_->any();
    if (lookers_.load(std::memory_order_seq_cst) != 0) link_->want_bell(false);
  }
  if (how == Rest::sleep && needs_looks_.load() && active_.count(std::memory_order_seq_cst) != 0)
    goes = false;
  bool died = false;
  if (goes) {
    died = peers_.wait(wake_, link_ != nullptr ? link_->bell() : -1, at_most_us);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto n = read(wake_, &count, sizeof count);
  }
  if (how == Rest::long_nap && active_.count(std::memory_order_seq_cst) != 0 &&
      lookers_.load(std::memory_order_seq_cst) == 0)
    short_naps_.store(kShortNaps, std::memory_order_relaxed);
  // A bell that has not rung stays wanted for the next sleep, because to request it again takes
  // time.
  if (link_ != nullptr) {
    if (lookers_.load(std::memory_order_seq_cst) != 0) link_->want_bell(false);
    link_->silence_bell();
  }
  rest_.store(Rest::none, std::memory_order_seq_cst);
  return died;
}

// Looks for the next message of the link, and yields the core between looks. True if a message has
// come by `until`, or another thread looks.
bool Exchanges::linger(Clock::time_point until) noexcept {
  if (crowded_ || link_ == nullptr) return false;
  while (!link_->any()) {
    if (lookers_.load(std::memory_order_relaxed) != 0) return true;
    if (stop_.load(std::memory_order_relaxed) || Clock::now() >= until) return false;
    sched_yield();
  }
  return true;
}

void Exchanges::thread_main() noexcept {
  prctl(PR_SET_NAME, kJoinedThread);
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds: makes the thread's short waits accurate
  Clock::time_point looked = Clock::now(), moved = looked;
  bool died = false;
  while (!stop_.load()) {
    EndedExchanges ended;
    bool any = false;
    bool idle = false;
    std::string fault;
    FaultListener* untold = nullptr;
    const bool left = left_to_others();
    {
      std::unique_lock lock(mutex_);
      if (stopped_) return;
      const Clock::time_point now = Clock::now();
      const bool turn = died || now - looked > milliseconds(10);
      // Other threads may handle only a part of the messages: an attempt takes only its own. So
      // this thread takes a turn now and then.
      if (!left || turn) any = move_on(lock, ended);
      if (turn) {
        if (now - looked > kMostBetweenLooks) do_not_count(now - looked);
        looked = now;
        try {
          look_at_clocks();
          look_at_peers();
          if (!fault_.empty()) end_all(ended);
        } catch (const std::exception& e) {
          fail(e.what(), true);
          end_all(ended);
        }
      }
      idle = active_.empty() && unfinished_.empty();
      if (untold_ != nullptr && !fault_.empty()) {
        untold = std::exchange(untold_, nullptr);
        fault = fault_;
      }
    }
    if (!ended.empty()) taken_by_thread_.fetch_add(1, std::memory_order_relaxed);
    ended.tell();
    while (untold != nullptr) std::exchange(untold, untold->next_)->job_failed(fault);
    died = false;
    const Clock::time_point now = Clock::now();
    if (any) moved = now;
    // The next message mostly comes soon, so that the thread looks for a while before it sleeps,
    // with longer and longer pauses. It sleeps at once where a message wakes it, and naps where
    // another waiting thread looks.
    const auto quiet = now - moved;
    if (left) {
      died = rest(next_nap());
    } else if (idle || !needs_looks_.load(std::memory_order_relaxed)) {
      if (!any && (idle || !linger(moved + kLinger))) died = rest(Rest::sleep);
    } else if (quiet < microseconds(200)) {
      sched_yield();
    } else {
      const int us = quiet < milliseconds(2) ? 20 : quiet < milliseconds(50) ? 100 : 500;
      died = peers_.wait(wake_, -1, us);
    }
  }
}

void Exchanges::stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    inboxes_.cancel(messages_);
  }
  stop_.store(true);
  wake_thread(Rest::nap);
  if (thread_.joinable()) {
    if (thread_.get_id() == std::this_thread::get_id())
      thread_.detach();
    else
      thread_.join();
  }
}

}  // namespace shmap
