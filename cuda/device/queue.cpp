#include "cuda/device/queue.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/spin_lock.h"
#include "core/base/wait_clock.h"
#include "core/base/warning.h"
#include "core/device/fork_guard.h"
#include "cuda/device/staged_link.h"
#include "cuda/device/wait_check.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "cuda/kernels/attention/library_attention.h"
#include "cuda/kernels/matmul/cublaslt_gemm.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

// On a computing stream there is a mark at least every kMarkEvery tasks, so that memory is released
// even if no thread waits for the newest task.
constexpr std::uint64_t kMarkEvery = 64;
// After another stream had to wait for a mark of later tasks, this many tasks get a mark each.
constexpr int kPrompt = 64;
constexpr std::size_t kManyMarks = 64;
// A host that asks kPollsBeforeMark times whether the newest task is done, while no task is added,
// is waiting. An operation on pending values only asks a few times for each operand before it adds
// a task.
constexpr int kPollsBeforeMark = 32;
// A query of an event takes the driver about a microsecond, a good part of an eager operation,
// which asks a few times for each operand. A program that waits, as for each step's result, gets
// exact answers, so that its arrays come to lie at the same addresses in each step.
constexpr int kCallsForQuery = 64;
constexpr int kQueriesAfterWait = 8;

// How often a host thread has waited for a queue: after that, more tasks are done than before.
std::atomic<std::uint64_t> host_waits{0};

}  // namespace

Queue::Queue(Ref<EventPool> events, Ref<Health> health, int priority, const QueueOptions& options)
    : events_(std::move(events)),
      health_(std::move(health)),
      priority_(priority),
      options_(options) {}

Queue::~Queue() { close(); }

void Queue::close() noexcept {
  std::lock_guard lock(mutex_);
  if (std::exchange(closed_, true)) return;
  completed_.store(tail(), std::memory_order_release);
  marks_.clear();
  gate_ = Point();
  if (stream_ == nullptr || forked()) return;
  drop_attention_workspace(stream_);
  drop_gemm_workspace(stream_);
  drop_link(stream_);
  note(cudaStreamDestroy(stream_));
}

cudaStream_t Queue::stream() {
  if (stream_ != nullptr) [[likely]]
    return stream_;
  const GpuScope gpu(this->gpu());
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority_),
        "cudaStreamCreateWithPriority");
  std::lock_guard lock(mutex_);
  return stream_ = stream;
}

std::uint64_t Queue::append(const char* name) {
  const std::uint64_t number = tail() + 1;
  names_[number % kNames].store(name, std::memory_order_relaxed);
  tail_.store(number, std::memory_order_release);
  if (options_.prompt || prompt_left_ > 0 || number % kMarkEvery == 0) {
    if (prompt_left_ > 0) --prompt_left_;
    std::lock_guard lock(mutex_);
    record_locked();
  }
  return number;
}

void Queue::wait_for(Queue& other, std::uint64_t number) {
  if (&other == this || other.completed() >= number) return;
  for (const Seen& seen : seen_) {
    if (seen.queue == &other && seen.number >= number) return;
  }
  Ref<Mark> mark;
  {
    std::lock_guard lock(other.mutex_);
    if (other.completed() >= number) return;
    mark = Ref<Mark>(other.covering_locked(number));
    if (!mark) {
      other.record_locked();
      mark = other.marks_.back();
    }
    if (mark->number() > number) other.prompt_left_ = kPrompt;
  }
  const GpuScope gpu(this->gpu());
  check(cudaStreamWaitEvent(stream(), mark->event(), 0), "cudaStreamWaitEvent");
  for (Seen& seen : seen_) {
    if (seen.queue != &other) continue;
    seen.number = mark->number();
    return;
  }
  seen_[next_seen_] = {&other, mark->number()};
  next_seen_ = (next_seen_ + 1) % kSeen;
}

void Queue::close_gate(Queue& by, std::uint64_t number) {
  if (&by != this) gate_ = {Ref<Queue>(&by), number};
}

void Queue::pass_gate() {
  if (!gate_.queue) [[likely]]
    return;
  wait_for(*gate_.queue, gate_.number);
  gate_ = Point();
}

void Queue::be_awaited_by(Queue& waiter) {
  if (gate_.queue) {
    waiter.wait_for(*gate_.queue, gate_.number);
  } else {
    waiter.wait_for(*this, tail());
  }
}

Point Queue::last() noexcept { return gate_.queue ? gate_ : Point{Ref<Queue>(this), tail()}; }

bool Queue::idle() noexcept {
  if (gate_.queue) {
    if (!gate_.queue->done(gate_.number)) return false;
    gate_ = Point();
  }
  return done(tail());
}

Mark* Queue::covering_locked(std::uint64_t number) noexcept {
  const auto at = std::ranges::lower_bound(marks_, number, {},
                                           [](const Ref<Mark>& mark) { return mark->number(); });
  return at == marks_.end() ? nullptr : at->get();
}

void Queue::record_locked() {
  const std::uint64_t number = tail();
  if (closed_ || number <= completed() || (!marks_.empty() && marks_.back()->number() == number))
    return;
  if (marks_.size() >= kManyMarks) {
    poll_locked(marks_.front()->number());
    // Not all marks are needed: the next mark also covers the tasks of the previous one.
    if (marks_.size() >= 2 * kManyMarks) {
      for (std::size_t i = 1; i < marks_.size(); ++i)
        marks_.erase(marks_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  auto mark = make_ref<Mark>(events_, number);
  ensure_context(gpu());
  check(cudaEventRecord(mark->event(), stream_), "cudaEventRecord");
  marks_.push_back(std::move(mark));
}

void Queue::finish_locked(std::uint64_t number) noexcept {
  if (number > completed()) completed_.store(number, std::memory_order_release);
  while (!marks_.empty() && marks_.front()->number() <= number) marks_.pop_front();
}

bool Queue::poll_locked(std::uint64_t number) noexcept {
  const Mark* mark = covering_locked(number);
  if (mark == nullptr || health_->poisoned()) return false;
  ensure_context(gpu());
  const UncapturedCalls uncaptured;
  const cudaError_t code = cudaEventQuery(mark->event());
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  if (code == cudaSuccess || is_unloading(code)) {
    finish_locked(mark->number());
    return true;
  }
  cudaGetLastError();
  health_->poison(code, "asking how far a stream has come");
  return false;
}

bool Queue::may_query_locked() noexcept {
  const std::uint64_t waits = host_waits.load(std::memory_order_relaxed);
  if (std::exchange(seen_host_waits_, waits) != waits) queries_left_ = kQueriesAfterWait;
  if (queries_left_ > 0) {
    --queries_left_;
  } else if (++calls_without_ < kCallsForQuery) {
    return false;
  }
  calls_without_ = 0;
  return true;
}

bool Queue::done(std::uint64_t number) noexcept { return ask(number, /*seldom=*/false); }
bool Queue::known_done(std::uint64_t number) noexcept { return ask(number, /*seldom=*/true); }

bool Queue::ask(std::uint64_t number, bool seldom) noexcept {
  if (completed() >= number) return true;
  if (forked()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || completed() >= number) return completed() >= number;
  if (seldom && covering_locked(number) != nullptr && !may_query_locked()) return false;
  if (poll_locked(number)) return true;
  if (marks_.empty() || marks_.back()->number() < number) {
    const std::uint64_t now = tail();
    if (polled_tail_ != now) {
      polled_tail_ = now;
      polls_ = 0;
    }
    if (++polls_ >= kPollsBeforeMark && !health_->poisoned()) {
      try {
        record_locked();
      } catch (...) {  // the task stays "not known to be done"; a thread that waits for it gets the
                       // error
      }
    }
  }
  return completed() >= number;
}

bool Queue::may_have_ended(std::uint64_t number) noexcept {
  if (completed() >= number) return true;
  if (forked()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return !lock || completed() >= number || poll_locked(number);
}

void Queue::wait_here(std::uint64_t number) {
  if (completed() >= number || health_->poisoned()) return;
  if (forked()) throw_forked();
  ensure_context(gpu());
  const UncapturedCalls uncaptured;  // another thread may destroy a graph while it captures another
  Ref<Mark> mark;
  {
    std::lock_guard lock(mutex_);
    if (completed() >= number) return;
    mark = Ref<Mark>(covering_locked(number));
    if (!mark) {
      record_locked();
      mark = marks_.back();
    }
  }
  WaitClock clock(options_.warn_sec, options_.timeout_sec);
  // Waits spin, as the CUDA runtime does, because a sleeping thread notices the end some 70
  // microseconds late. In long waits the thread yields its core.
  constexpr int kLooks = 64;
  constexpr auto kSpin = std::chrono::milliseconds(20);
  const auto begin = std::chrono::steady_clock::now();
  bool spins = true;
  for (int turn = 0;; ++turn) {
    const cudaError_t code = cudaEventQuery(mark->event());
    if (code == cudaSuccess || is_unloading(code)) break;
    cudaGetLastError();
    if (code != cudaErrorNotReady) {
      health_->poison(code, ("the wait for " + name_of(number)).c_str());
      return;
    }
    if (spins) {
      cpu_relax();
      if (turn % kLooks != kLooks - 1) continue;
      std::this_thread::yield();
      spins = std::chrono::steady_clock::now() - begin < kSpin;
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (turn % kLooks != 0) continue;
    check_wait();
    const auto text = [&] {
      return "waiting for " + name_of(number) + ", since " + std::to_string(clock.seconds()) +
             " s; the GPU has done " + std::to_string(completed()) + " of the " +
             std::to_string(tail()) + " tasks of this stream that were enqueued";
    };
    switch (clock.look()) {
      case WaitClock::Due::nothing:
        break;
      case WaitClock::Due::warning:
        warn(text() + " (SHMAP_COLLECTIVE_WARN_SEC)");
        break;
      case WaitClock::Due::failure:
        throw DeviceError(text() + ". Giving up (SHMAP_COLLECTIVE_TIMEOUT_SEC); the task goes on.");
    }
  }
  host_waits.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  finish_locked(mark->number());
}

std::string Queue::name_of(std::uint64_t number) const {
  const char* name =
      tail() - number < kNames ? names_[number % kNames].load(std::memory_order_relaxed) : nullptr;
  return "'" + std::string(name != nullptr ? name : "an earlier task") + "' of local device " +
         std::to_string(options_.device_index) + ", " + options_.label + " stream";
}

}  // namespace shmap::cuda
