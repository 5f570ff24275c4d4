#include "collectives/nccl/roll_call.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "collectives/cross_table.h"
#include "collectives/exchange_task.h"
#include "core/processes/processes.h"
#include "cuda/device/stream.h"
#include "cuda/graph/capture.h"

namespace shmap::nccl {

namespace {

// The roll calls that are still open.
struct Open {
  struct Call {
    Ref<cuda::Queue> queue;
    std::uint64_t number;
  };
  std::mutex mutex;
  std::map<std::uint64_t, std::vector<Call>> calls;  // by a separate numbering
  std::uint64_t next = 0;
  std::atomic<int> count{0};

  static Open& get() {
    static auto& open = *new Open;
    return open;
  }
};

// One open roll call. Its error is an error of the job, which waits for GPUs throw.
class Attendance final : public ExchangeEnd {
 public:
  // Returns the number of the roll call.
  static std::uint64_t begin(ProcessExchange exchange, std::vector<Open::Call> calls) {
    auto own = std::unique_ptr<Attendance>(new Attendance(std::move(exchange)));
    Open& open = Open::get();
    {
      std::lock_guard lock(open.mutex);
      own->number_ = open.next++;
      open.calls.emplace(own->number_, std::move(calls));
      open.count.fetch_add(1, std::memory_order_relaxed);
    }
    Attendance* const begun = own.release();
    const std::uint64_t number = begun->number_;
    Processes::joined()->exchanges().start(begun->exchange_, *begun);
    return number;
  }

 private:
  friend struct std::default_delete<Attendance>;
  explicit Attendance(ProcessExchange exchange) : exchange_(std::move(exchange)) {}
  ~Attendance() = default;
  // After an error the tasks stay in doubt: NCCL's work is aborted, and the GPUs count as lost.
  void exchanged(std::exception_ptr error) noexcept override {
    if (error == nullptr) {
      std::vector<Open::Call> calls;  // destroyed without the lock
      Open& open = Open::get();
      std::lock_guard lock(open.mutex);
      const auto it = open.calls.find(number_);
      calls = std::move(it->second);
      open.calls.erase(it);
      open.count.fetch_sub(1, std::memory_order_relaxed);
    }
    delete this;
  }
  const ProcessExchange exchange_;
  std::uint64_t number_ = 0;
};

thread_local std::uint64_t last_called = 0;

// The roll call of a graph: its collectives' numbers count from the launch's ticket.
class CapturedRollCall final : public cuda::Kept {
 public:
  explicit CapturedRollCall(ProcessExchange exchange) : exchange_(std::move(exchange)) {}
  void launched(std::uint64_t ticket, cuda::Queue& queue, std::uint64_t number) noexcept override {
    try {
      ProcessExchange exchange = exchange_;
      exchange.number += ticket;
      Attendance::begin(std::move(exchange), {{Ref<cuda::Queue>(&queue), number}});
    } catch (const std::bad_alloc&) {
      return;  // the others notice that this process is missing, and report it
    }
  }

 private:
  const ProcessExchange exchange_;
};

}  // namespace

void call_roll(const GroupBlocks& blocks, CollectiveKind kind, std::uint64_t dtype_and_op,
               const char* dtype, std::span<const int> extra) {
  if (blocks.cliques.cross == nullptr) return;
  const CrossCall call(blocks, kind, dtype_and_op, dtype, extra);
  if (call.captured()) {
    cuda::keep_with_graph(make_ref<CapturedRollCall>(call.roll_call()));
  } else {
    last_called = Attendance::begin(call.roll_call(), {});
  }
}

void note_enqueued(cuda::Queue& queue, std::uint64_t number) {
  Open& open = Open::get();
  std::lock_guard lock(open.mutex);
  const auto it = open.calls.find(last_called);
  if (it != open.calls.end()) it->second.push_back({Ref<cuda::Queue>(&queue), number});
}

bool roll_in_doubt() noexcept {
  Open& open = Open::get();
  if (open.count.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(open.mutex);
  for (const auto& [own, calls] : open.calls)
    for (const Open::Call& call : calls)
      if (call.queue->done(call.number)) return true;
  return false;
}

}  // namespace shmap::nccl
