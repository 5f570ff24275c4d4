#include "collectives/exchange_task.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "collectives/collective_site.h"
#include "collectives/cross_table.h"
#include "core/base/counters.h"
#include "core/base/hash_text.h"
#include "core/device/host_log.h"
#include "core/device/plan_memory.h"
#include "core/ir/trace.h"
#include "core/processes/exchanges.h"
#include "core/processes/processes.h"
#include "core/processes/shared_heap.h"
#include "core/runtime/collective_numbers.h"
#include "core/runtime/launch.h"
#include "core/runtime/step_label.h"
#include "shmap/error.h"

namespace shmap {

namespace {

// The task is never run at once: the caller would wait for other processes with a lock held.
constexpr std::int64_t kCostNs = 1'000'000'000'000;

class ExchangeTask final : public ExchangeEnd {
 public:
  // name: of the task.
  ExchangeTask(ProcessExchange exchange, const char* name, bool captured,
               const CollectiveSite& site)
      : exchange_(std::move(exchange)),
        name_(name),
        offset_(exchange_.number),
        captured_(captured),
        site_(site),
        attempt_(Processes::joined()->exchanges().prepare(exchange_)) {}
  virtual ~ExchangeTask() = default;

  bool may_attempt() const { return attempt_ != nullptr; }

  bool attempt(const TaskContext& context) {
    if (host_log_runs()) return false;  // a trace shows an exchange from its start to its end
    try {
      reach(context);
      reached_ = !Processes::joined()->exchanges().attempt(exchange_, *attempt_);
      return !reached_;
    } catch (...) {
      tell_others(std::current_exception());
      rethrow_from(site_);
    }
  }

  void run(const TaskContext& context) {
    try {
      if (!std::exchange(reached_, false)) reach(context);
      if (host_log_runs())
        log_exchange({name_, timeline_now(), exchange_.space, exchange_.number, exchange_.round});
      Exchanges& exchanges = Processes::joined()->exchanges();
      if (context.end == nullptr) return exchanges.run(exchange_);
      end_ = context.end;
      exchanges.start(exchange_, *this, attempt_.get());  // *this may be destroyed during this call
    } catch (...) {
      tell_others(std::current_exception());
      rethrow_from(site_);
    }
  }

  // The task is not run, since what the exchange sends could not be computed.
  void skip(std::uint64_t ticket, const std::exception_ptr& error) noexcept {
    if (captured_) exchange_.number = ticket + offset_;
    tell_others(error);
  }

  std::string text() const { return describe(site_.op) + at_line(site_.op.source); }

 private:
  void reach(const TaskContext& context) {
    reach_collective(site_, 0);
    if (captured_) exchange_.number = context.ticket + offset_;
  }

  // No effect after a failure of the job, which the others know.
  void tell_others(const std::exception_ptr& error) const noexcept {
    try {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& e) {
        Processes::joined()->exchanges().skip(exchange_, e.what());
      } catch (...) {
        Processes::joined()->exchanges().skip(exchange_,
                                              "an exception that is not a std::exception");
      }
    } catch (...) {
      return;  // no memory for the text: the others see this process as late
    }
  }

  void exchanged(std::exception_ptr error) noexcept override {
    if (error != nullptr) {
      try {
        try {
          std::rethrow_exception(error);
        } catch (...) {
          rethrow_from(site_);
        }
      } catch (...) {
        error = std::current_exception();
      }
    }
    end_->end(std::move(error));
  }

  ProcessExchange exchange_;
  const char* const name_;
  const std::uint64_t offset_;
  const bool captured_;
  const CollectiveSite site_;
  const std::shared_ptr<Exchanges::Attempt> attempt_;
  bool reached_ = false;  // an attempt was made, which run() continues
  TaskEnd* end_ = nullptr;
};

// Sorts by peer, and keeps the order of each peer's parcels. Returns the new index of each parcel.
std::vector<std::uint32_t> sort_by_peer(std::vector<Parcel>& parcels) {
  std::vector<std::uint32_t> order(parcels.size()), to(parcels.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return parcels[i].peer; });
  std::vector<Parcel> sorted;
  sorted.reserve(parcels.size());
  for (std::uint32_t k = 0; k < order.size(); ++k) {
    sorted.push_back(parcels[order[k]]);
    to[order[k]] = k;
  }
  parcels = std::move(sorted);
  return to;
}

// The processes of parcels that are sorted by peer.
std::vector<int> peers_of(const std::vector<Parcel>& parcels) {
  std::vector<int> peers;
  for (const Parcel& p : parcels)
    if (peers.empty() || peers.back() != p.peer) peers.push_back(p.peer);
  return peers;
}

std::byte* at(const Block& block, std::int64_t offset) {
  return static_cast<std::byte*>(block.data()) + offset;
}

// In a captured program, asks for memory that the other processes can read.
void lend(const Buffer& buffer) {
  if (SharedHeap::of_process() != nullptr && buffer.bytes() <= SharedHeap::kMostBytes)
    place_apart(tape_index(buffer), SharedHeap::kMostBytes);
}

void add_once(std::vector<Buffer*>& list, std::vector<BufferRef>& held, const Block& block) {
  if (std::find(list.begin(), list.end(), block.buffer.get()) != list.end()) return;
  list.push_back(block.buffer.get());
  held.push_back(block.buffer);
}

}  // namespace

CrossCall::CrossCall(const GroupBlocks& blocks, CollectiveKind kind, std::uint64_t code,
                     std::span<const int> extra)
    : blocks_(blocks),
      captured_(capturing()),
      way_(blocks.cliques.cross->way),
      space_(number_space(blocks.mesh, way_)) {
  HashText check;
  check.add(blocks.primitive.name)
      .add(static_cast<std::uint64_t>(kind))
      .add(static_cast<std::uint64_t>(blocks.dtype))
      .add(code)
      .add(static_cast<std::uint64_t>(blocks.in_bytes))
      .add(static_cast<std::uint64_t>(blocks.out_bytes))
      .add(blocks.cliques.cross->key)
      .add(blocks.cliques.cross->rest);  // decides which blocks the parcels are
  for (const int e : extra) check.add(static_cast<std::uint64_t>(e));
  check_ = check.value();
  label_.set(blocks.primitive.name, blocks.cliques.cross->axes, short_name(blocks.dtype),
             blocks.source.file, static_cast<std::uint32_t>(blocks.source.line), blocks.in_bytes);
}

void CrossCall::take_number() {
  if (std::exchange(numbered_, true)) return;
  number_ = captured_ ? captured_numbers()++ : take_numbers(blocks_.mesh, way_, 1);
}

void CrossCall::give_up(const char* why) {
  if (captured_ || !numbered_) return;
  if (!others_know_) return give_numbers_back(blocks_.mesh, way_, number_);
  Processes& job = *Processes::joined();
  job.exchanges().report(job.peers().text(job.rank()) + " cannot go on with collective number " +
                         std::to_string(number_) + " of the mesh, " + label_.text() + ": " + why);
}

void CrossCall::Round::send(int peer, const Block& block, std::int64_t offset, std::int64_t bytes) {
  sends.push_back({peer, at(block, offset), bytes});
  lend(*block.buffer);
  add_once(reads, held, block);
}

void CrossCall::Round::receive(int peer, const Block& block, std::int64_t offset,
                               std::int64_t bytes) {
  receives.push_back({peer, at(block, offset), bytes});
  add_once(writes, held, block);
}

std::size_t CrossCall::Round::receive(int peer, std::int64_t bytes) {
  receives.push_back({peer, nullptr, bytes});
  return receives.size() - 1;
}

void CrossCall::Round::copy(const Block& to, std::int64_t to_offset, const Block& from,
                            std::int64_t from_offset, std::int64_t bytes) {
  copies.push_back({at(to, to_offset), at(from, from_offset), bytes});
  add_once(reads, held, from);
  add_once(writes, held, to);
}

void CrossCall::Round::work_reads(const Block& block) { add_once(reads, held, block); }
void CrossCall::Round::work_writes(const Block& block) { add_once(writes, held, block); }

ProcessExchange CrossCall::empty_exchange(std::uint32_t round) const {
  ProcessExchange exchange;
  exchange.space = space_;
  exchange.number = number_;
  exchange.round = round;
  exchange.check = check_;
  exchange.program = program_.program;
  exchange.constants = program_.constants;
  exchange.equations = program_.equations;
  exchange.label = label_;
  return exchange;
}

ProcessExchange CrossCall::roll_call() {
  take_number();
  ProcessExchange exchange = empty_exchange(0);
  for (const int process : blocks_.cliques.cross->partners) {
    exchange.sends.push_back({process, nullptr, 0});
    exchange.receives.push_back({process, nullptr, 0});
  }
  return exchange;
}

void CrossCall::enqueue(Round round) {
  take_number();
  const std::uint32_t index = rounds_++;
  if (round.sends.empty() && round.receives.empty()) {
    // Nothing would do the work, and nobody would notice: its results would have no values.
    if (round.work != nullptr || !round.copies.empty())
      throw Error(std::string(blocks_.primitive.name) +
                  ": an exchange without parcels has work; please report the program");
    return;
  }
  std::int64_t bytes = 0;
  for (const Parcel& p : round.sends) bytes += p.bytes;
  for (const Parcel& p : round.receives) bytes += p.bytes;
  sort_by_peer(round.sends);
  const std::vector<std::uint32_t> numbers = sort_by_peer(round.receives);
  if (round.work != nullptr) round.work->number(numbers);
  ProcessExchange exchange = empty_exchange(index);
  exchange.sends = std::move(round.sends);
  exchange.receives = std::move(round.receives);
  exchange.work = std::move(round.work);
  exchange.copies = std::move(round.copies);

  TaskWaits waits;
  if (!detail::nothing_pending(round.reads, round.writes))
    detail::collect_waits(round.reads, round.writes, waits);
  // Collectives that follow each other need not wait for each other: they use different streams.
  const LocalDevice& device =
      blocks_.mesh.local(static_cast<std::uint32_t>(number_ % blocks_.mesh.local_count()));
  const CollectiveSite site{{&blocks_.primitive, &blocks_.mesh, 0, blocks_.number, blocks_.source},
                            &blocks_.cliques};
  Task task;
  task.name = labels_tasks()
                  ? exchange_task_name(blocks_.primitive.name, blocks_.number,
                                       peers_of(exchange.sends), peers_of(exchange.receives))
                  : blocks_.primitive.name;
  task.bytes = bytes;
  task.cost_ns = kCostNs;
  task.later = true;
  task.run = [](void* args, const TaskContext& context) {
    static_cast<ExchangeTask*>(args)->run(context);
  };
  task.skip = [](void* args, std::uint64_t ticket, const std::exception_ptr& error) noexcept {
    static_cast<ExchangeTask*>(args)->skip(ticket, error);
  };
  task.drop = [](void* args) noexcept { delete static_cast<ExchangeTask*>(args); };
  task.describe = [](const void* args) { return static_cast<const ExchangeTask*>(args)->text(); };
  auto* const made = new ExchangeTask(std::move(exchange), task.name, captured_, site);
  task.args = made;
  if (made->may_attempt()) {
    task.join = [](void* args, const Task&, const TaskContext& context) {
      return static_cast<ExchangeTask*>(args)->attempt(context);
    };
  }
  const Event event = device.comm->enqueue(task, waits.data, waits.order);
  others_know_ = true;
  if (event.record() != nullptr) detail::note_launch(event, round.reads, round.writes);
}

}  // namespace shmap
