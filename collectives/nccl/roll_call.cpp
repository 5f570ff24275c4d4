#include "collectives/nccl/roll_call.h"

#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "collectives/cross_table.h"
#include "core/processes/exchanges.h"
#include "core/processes/process_exchange.h"
#include "core/processes/processes.h"
#include "cuda/backend/capture.h"
#include "cuda/backend/stream.h"
#include "cuda/device/doubt.h"

namespace shmap::nccl {

namespace {

// One open roll call. Its error is an error of the job, which waits for GPUs throw.
class Attendance final : public ExchangeEnd {
 public:
  // Returns the number of the doubt that lasts until all processes have answered.
  static std::uint64_t begin(ProcessExchange exchange, std::vector<cuda::DoubtedTask> tasks) {
    auto own = std::unique_ptr<Attendance>(new Attendance(std::move(exchange)));
    const std::uint64_t doubt = own->doubt_ = cuda::begin_doubt(std::move(tasks));
    Attendance* const begun = own.release();
    Processes::joined()->exchanges().start(begun->exchange_, *begun);
    return doubt;
  }

 private:
  friend struct std::default_delete<Attendance>;
  explicit Attendance(ProcessExchange exchange) : exchange_(std::move(exchange)) {}
  ~Attendance() = default;
  // After an error the tasks stay in doubt: NCCL's work is aborted, and the GPUs count as lost.
  void exchanged(std::exception_ptr error) noexcept override {
    if (error == nullptr) cuda::end_doubt(doubt_);
    delete this;
  }
  const ProcessExchange exchange_;
  std::uint64_t doubt_ = 0;
};

thread_local std::uint64_t last_doubt = 0;  // the doubt of this thread's latest roll call

// The roll call of a graph: its collectives' numbers count from the launch's ticket.
class CapturedRollCall final : public cuda::GraphResource {
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

void call_roll(CrossCall& call) {
  if (call.captured()) {
    cuda::keep_with_graph(make_ref<CapturedRollCall>(call.roll_call()));
  } else {
    last_doubt = Attendance::begin(call.roll_call(), {});
    call.others_know();
  }
}

void note_enqueued(cuda::Queue& queue, std::uint64_t number) {
  cuda::add_to_doubt(last_doubt, {Ref<cuda::Queue>(&queue), number});
}

}  // namespace shmap::nccl
