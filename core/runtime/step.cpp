#include "core/runtime/step.h"

#include <algorithm>
#include <bit>
#include <exception>

#include "core/base/counters.h"
#include "core/base/fault.h"
#include "core/base/inline_vector.h"
#include "core/device/task_run.h"
#include "core/device/timeline.h"
#include "core/ir/trace.h"
#include "core/runtime/launch.h"
#include "core/runtime/owned_call.h"
#include "core/runtime/rates.h"
#include "core/runtime/step_label.h"
#include "core/runtime/step_view.h"

namespace shmap {

namespace {

// The state of the calling thread. Without the barrier the compiler would know which variable the
// reference names, and would look the variable up at each use.
detail::ThreadState& this_thread() {
  detail::ThreadState* state = &detail::thread_state;
  asm("" : "+r"(state));
  return *state;
}

// Used only to decide whether the call is queued. `bytes`: the bytes of operands and results.
std::int64_t estimate_ns(const Step& step, Types out_types, DeviceKind kind, std::int64_t bytes) {
  const Rates& rate = rates(kind);
  if (step.primitive.cost)
    return static_cast<std::int64_t>(
        rate.ns(step.primitive.cost(step.in_types, step.params, out_types)));
  return static_cast<std::int64_t>(static_cast<double>(bytes) / rate.bytes_per_ns);
}

// Runs or enqueues a step for one leader after another; run() does all of them.
class LeaderLaunch {
 public:
  using Leaders = std::span<const std::uint32_t>;

  // `thread`: the state of the calling thread.
  LeaderLaunch(const Step& step, Types out_types, std::span<StoredNode* const> out,
               const Cohorts& cohorts, OpSite& site, detail::ThreadState& thread)
      : step_(step),
        thread_(thread),
        out_types_(out_types),
        cohorts_(cohorts),
        kind_(step.mesh.backend().kind()),
        kernel_(kernel_of(step, kind_)),
        in_(step.in.size()),
        tables_(step.in.size()),
        out_(out.size()),
        results_(out.size()),
        call_{in_.span(), out_.span(), step.in_types, out_types, step.params},
        site_(site) {
    std::int64_t bytes = 0;
    for (std::size_t o = 0; o < out.size(); ++o) {
      results_[o] = {out[o]->blocks().data(), out_types[o].nbytes(), 0, -1};
      bytes += results_[o].bytes;
    }
    for (std::size_t i = 0; i < step.in.size(); ++i) {
      const Node* node = node_of(step.in[i]);
      tables_[i] = nullptr;
      if (node->kind == NodeKind::literal) {
        in_[i] = static_cast<const LiteralNode*>(node)->value;
        // Only users' primitives have more operands, and they ask only whether any is a literal.
        call_.literals |= 1u << i % 32;
      } else {
        tables_[i] = static_cast<const StoredNode*>(node)->blocks().data();
      }
      const std::int64_t operand_bytes = step.in_types[i].nbytes();
      bytes += operand_bytes;
      if (step.primitive.in_place && i < 32 &&
          (operand_bytes == results_[0].bytes || out.size() > 1))
        note_donated(i, operand_bytes);
    }
    cost_ns_ = estimate_ns(step, out_types, kind_, bytes);
    name_ = task_name(step.primitive.name, thread);
    foreign_ = kernel_.foreign || fault::armed();
    plain_ = kind_ == kHostKind && !foreign_ && timeline_sink() == nullptr;
  }

  void run() {
    Leaders leaders = cohorts_.leaders;
    if (leaders.size() > 1) {
      if (!any_reusable_) take_cached();
      at_once_ = plain_ && step_.mesh.backend().all_run_at_once(cost_ns_, thread_);
      if (at_once_ && kernel_.each) leaders = run_each(leaders);
    }
    for (const std::uint32_t position : leaders) {
      const LocalDevice& device = step_.mesh.local(position);
      call_.position = position;
      if (bind_blocks(position, *device.space) || !run_now(*device.compute))
        run_after(device, *device.compute);
    }
  }

 private:
  // The call as a task that runs while this object is there.
  Task task_here() {
    site_.position = call_.position;
    Task task;
    task.run = run_here;
    task.args = this;
    task.describe = describe_here;
    task.cost_ns = cost_ns_;
    task.name = name_;
    task.foreign = foreign_;
    return task;
  }

  static void run_here(void* args, const TaskContext& context) {
    auto* self = static_cast<LeaderLaunch*>(args);
    self->call_.native = context.native;
    run_kernel(self->kernel_.run, self->call_, self->site_);
  }

  static void throw_failure(void* args, const TaskContext&) {
    const auto* self = static_cast<const LeaderLaunch*>(args);
    try {
      std::rethrow_exception(self->failure_);
    } catch (...) {
      run_kernel([](const KernelCall&) { throw; }, self->call_, self->site_);  // adds the site
    }
  }

  // If operand i is donated, marks it in donated_, and in Result::reusable for each result that may
  // overwrite it.
  void note_donated(std::size_t i, std::int64_t bytes) {
    const Node& node = *node_of(step_.in[i]);
    if (node.refs.load(std::memory_order_acquire) != 1 || node.kind != NodeKind::stored) return;
    // The operands of an eager operation on a sharded array name the array's own blocks, which must
    // not be overwritten. The first block decides for all, so that no other one is looked at.
    const Leaders leaders = cohorts_.leaders;
    if (leaders.empty() || !owned_alone(*stored_of(step_.in[i]), leaders.front())) return;
    donated_ |= 1u << i;
    for (std::size_t o = 0; o < results_.size(); ++o) {
      if (results_[o].bytes != bytes ||
          !may_overwrite(step_.primitive, kernel_, step_.params, o, out_types_[o].dtype(), i,
                         step_.in_types[i].dtype()))
        continue;
      results_[o].reusable |= 1u << i;
      any_reusable_ = true;
    }
  }

  static std::string describe_here(const void* args) {
    const OpSite& site = static_cast<const LeaderLaunch*>(args)->site_;
    return describe(site) + at_line(site.source);
  }

  // Enters cached buffers in the tables of the results, as long as the cache has any.
  void take_cached() {
    const std::span<const std::uint32_t> leaders = cohorts_.leaders;
    for (std::size_t k = 0; k < leaders.size();) {
      MemorySpace& space = *step_.mesh.local(leaders[k]).space;
      const std::size_t first = k;
      while (k < leaders.size() && step_.mesh.local(leaders[k]).space == &space) ++k;
      for (const Result& result : results_) {
        BufferChain chain;
        space.take_cached(result.bytes, static_cast<std::uint32_t>(k - first), chain, thread_);
        for (std::size_t l = first; l < k; ++l) {
          BufferRef buffer = chain.next();
          if (!buffer) break;
          result.table[leaders[l]].buffer = std::move(buffer);
        }
      }
    }
  }

  // Runs the calls by Kernel::each, for kMost devices at a time, and stops at the first group of
  // devices of which a pending task may use a block. Returns the leaders whose calls have not been
  // run.
  [[gnu::noinline]] Leaders run_each(Leaders leaders) {
    constexpr std::size_t kMost = 16;
    while (!leaders.empty()) {
      const Leaders group = leaders.first(std::min(leaders.size(), kMost));
      DeviceAddresses bound[kMost];
      if (!bind_all(group, bound)) [[unlikely]]
        break;
      thread_.task = name_;
      kernel_.each(call_, {bound, group.size()});
      thread_.task = nullptr;
      leaders = leaders.subspan(group.size());
    }
    return leaders;
  }

  // Sets the addresses for several leaders, as bind_blocks does for one. Returns false if a task on
  // one of the buffers may be pending; no result then has an operand's memory.
  bool bind_all(Leaders leaders, DeviceAddresses* bound) {
    if (any_reusable_)
      for (const std::uint32_t position : leaders) take_operands(position);
    // Not 0 if some buffer has an event, so that one test serves all buffers.
    std::uintptr_t events = 0;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      DeviceAddresses* to = bound;
      if (const Block* const table = tables_[i]) {
        for (const std::uint32_t position : leaders) {
          const Block& block = table[position];
          events |= reinterpret_cast<std::uintptr_t>(block.buffer->def().record());
          to++->in[i] = block.data();
        }
      } else {
        for (; to != bound + leaders.size(); ++to) to->in[i] = in_[i];
      }
    }
    DeviceAddresses* to = bound;
    for (const std::uint32_t position : leaders) {
      Block& block = results_[0].table[position];
      if (!block.buffer) [[unlikely]]
        block.buffer = step_.mesh.local(position).space->allocate(results_[0].bytes,
                                                                  MemorySpace::For::tasks, thread_);
      events |= reinterpret_cast<std::uintptr_t>(block.buffer->def().record()) |
                block.buffer->uses().size();
      to++->out = block.data();
    }
    if (events != 0 && any_reusable_)
      for (const std::uint32_t position : leaders) give_operand_back(position);
    return events == 0;
  }

  // Sets the addresses of the operands, and allocates the results' buffers. Returns true if a task
  // on one of the buffers may be pending, and always if one is.
  bool bind_blocks(std::uint32_t position, MemorySpace& space) {
    if (any_reusable_) take_operands(position);
    bool pending = false;
    const std::span<const Block* const> tables = tables_.span();
    const void** const in = in_.data();
    for (std::size_t i = 0; i < tables.size(); ++i) {
      if (tables[i] == nullptr) continue;
      const Block& block = tables[i][position];
      in[i] = block.data();
      pending |= block.buffer->def().record() != nullptr;
    }
    const std::span<const Result> results = results_.span();
    void** const out = out_.data();
    for (std::size_t o = 0; o < results.size(); ++o) {
      Block& block = results[o].table[position];
      if (!block.buffer) [[unlikely]]
        block.buffer = space.allocate(results[o].bytes, MemorySpace::For::tasks, thread_);
      pending |= !block.buffer->untouched();
      out[o] = block.data();
    }
    if (kernel_.scratch && !kernel_.parts) pending |= add_scratch(space);
    return pending;
  }

  // Gives each result the memory of an operand that the result may overwrite, if there is one.
  void take_operands(std::uint32_t position) {
    taken_ = 0;
    for (Result& result : results_) {
      result.reused = -1;
      for (std::uint32_t left = result.reusable & ~taken_; left != 0; left &= left - 1) {
        const auto i = static_cast<std::size_t>(std::countr_zero(left));
        if (!is_reusable(*stored_of(step_.in[i]), position)) continue;
        result.reused = static_cast<int>(i);
        taken_ |= 1u << i;
        result.table[position] = tables_[i][position];
        break;
      }
    }
    term_ = kernel_.adds && taken_ != 0 ? find_term(position, 1 - results_[0].reused) : -1;
  }

  // Undoes take_operands() for a kernel of one result.
  void give_operand_back(std::uint32_t position) {
    Block& result = results_[0].table[position];
    for (const Block* table : tables_.span())
      if (table != nullptr && result.buffer == table[position].buffer) result = Block();
  }

  // The buffers of the call, which only one that is queued or has failed needs.
  class Buffers {
   public:
    explicit Buffers(const LeaderLaunch& launch)
        : reads_(launch.tables_.size()), writes_(launch.results_.size() + 1) {
      const std::uint32_t position = launch.call_.position;
      for (std::size_t i = 0; i < launch.tables_.size(); ++i) {
        if (launch.tables_[i] != nullptr && !(i < 32 && (launch.taken_ >> i & 1u)))
          add_read(launch.tables_[i][position].buffer.get());
      }
      for (const Result& result : launch.results_.span())
        writes_[n_writes_++] = result.table[position].buffer.get();
      if (launch.scratch_) writes_[n_writes_++] = launch.scratch_.get();
    }
    // For the operands whose memory a result has taken: other ones are there already.
    void add_read(Buffer* buffer) { reads_[n_reads_++] = buffer; }
    std::span<Buffer* const> reads() const { return reads_.span().first(n_reads_); }
    std::span<Buffer* const> writes() const { return writes_.span().first(n_writes_); }

   private:
    InlineVector<Buffer*, 4> reads_;
    InlineVector<Buffer*, 3> writes_;  // buffers of the results, and scratch
    std::size_t n_reads_ = 0, n_writes_ = 0;
  };

  // Runs the call, which nothing precedes, on this thread, if the stream lets it.
  [[gnu::always_inline]] bool run_now(Stream& stream) {
    if (!at_once_ && !stream.runs_at_once(cost_ns_, thread_) &&
        !stream.overtakes(cost_ns_, thread_))
      return false;
    if (plain_) [[likely]] {
      std::exception_ptr failure = run_as_task(name_, thread_, [this] { kernel_.run(call_); });
      if (failure == nullptr) return true;
      failure_ = std::move(failure);
    }
    run_task(stream);
    return true;
  }

  // Runs the call as a task of the stream. If the call has run already and thrown failure_, the
  // task throws failure_ instead.
  [[gnu::noinline]] void run_task(Stream& stream) {
    Task task = task_here();
    if (failure_ != nullptr) task.run = throw_failure;
    const Buffers buffers(*this);
    finish(stream.run_at_once(task, thread_), buffers);
  }

  // Puts the call after the pending tasks of its buffers.
  [[gnu::noinline]] void run_after(const LocalDevice& device, Stream& stream) {
    Buffers buffers(*this);
    TaskWaits waits;
    detail::collect_waits(buffers.reads(), buffers.writes(), waits);
    if (waits.empty() && run_now(stream)) return;
    if (stream.calls_at_enqueue(thread_))
      return finish(stream.enqueue(task_here(), waits.data, waits.order), buffers);
    enqueue(device, stream, buffers, waits);
  }

  // Allocates the scratch of a kernel that is never split. True if a task on it may be pending.
  bool add_scratch(MemorySpace& space) {
    const std::int64_t bytes = kernel_.scratch(call_);
    scratch_ = bytes != 0 ? space.allocate(bytes, MemorySpace::For::tasks) : BufferRef();
    call_.scratch = bytes != 0 ? scratch_->data() : nullptr;
    return bytes != 0 && !scratch_->untouched();
  }

  // Enqueues the call as a task that outlives this object.
  void enqueue(const LocalDevice& device, Stream& stream, Buffers& buffers,
               const TaskWaits& waits) {
    Task task = task_here();
    // With at least as many leaders as workers each call is one part: the devices already run in
    // parallel.
    const int workers = step_.mesh.backend().workers();
    if (kernel_.parts && cohorts_.leaders.size() < static_cast<std::size_t>(workers)) {
      task.parts = kernel_.parts(call_, workers);
    }
    task.run = OwnedCall::run_task;
    task.drop = OwnedCall::drop;
    task.describe = OwnedCall::describe_task;
    if (task.parts > 1 && kernel_.scratch) {
      KernelCall split = call_;
      split.parts = task.parts;
      if (const std::int64_t bytes = kernel_.scratch(split)) {
        const BufferRef scratch = device.space->allocate(bytes, MemorySpace::For::tasks);
        Buffer* const shared[] = {scratch.get()};
        // The parts still read the operands that `finish` overwrites.
        for (std::size_t o = 0; taken_ != 0 && o < results_.size(); ++o)
          if (results_[o].reused >= 0) buffers.add_read(buffers.writes()[o]);
        task.args = own(kernel_.run, scratch->data());
        enqueue_after(stream, task, buffers.reads(), shared);
        task.parts = 1;
        task.cost_ns = 0;
        task.args = own(kernel_.finish, scratch->data());
        enqueue_after(stream, task, shared, buffers.writes());
        return;
      }
    }
    // Evaluated first: nothing may fail between own() and enqueue(), which takes ownership of the
    // args.
    const bool accumulates = task.parts == 1 && kernel_.accumulate && kernel_.accumulates(call_);
    OwnedCall* const owned = own(kernel_.run, call_.scratch);
    task.args = owned;
    if (accumulates) {
      owned->accumulate = kernel_.accumulate;
      task.makes = out_[0];
    }
    if (term_ >= 0) {
      task.takes = in_[static_cast<std::size_t>(term_)];
      task.join = OwnedCall::join;
    }
    finish(stream.enqueue(task, waits.data, waits.order), buffers);
  }

  static const Kernel& kernel_of(const Step& step, DeviceKind kind) {
    const Kernel& kernel = step.primitive.kernel(kind);
    if (!kernel.run) {
      const char* const reason = step.primitive.no_kernel;
      throw DeviceError(std::string(step.primitive.name) + " has no kernel for the backend '" +
                        step.mesh.backend().name() + "'" + (reason ? ": " : "") +
                        (reason ? reason : ""));
    }
    return kernel;
  }

  static void finish(const Event& event, const Buffers& buffers) {
    if (event.record() != nullptr) detail::note_launch(event, buffers.reads(), buffers.writes());
  }

  static void enqueue_after(Stream& stream, const Task& task, std::span<Buffer* const> reads,
                            std::span<Buffer* const> writes) {
    TaskWaits waits;
    try {
      detail::collect_waits(reads, writes, waits);
    } catch (...) {
      task.drop(task.args);  // enqueue() would have dropped them
      throw;
    }
    const Event event = stream.enqueue(task, waits.data, waits.order);
    if (event.record() != nullptr) detail::note_launch(event, reads, writes);
  }

  // Whether a result may take the buffer of a donated operand. Only the entries of this cohort in
  // this one table may name the buffer.
  bool is_reusable(const StoredNode& node, std::uint32_t position) const {
    // After a pending reader of the buffer, the result would have to wait for that reader, although
    // they are unrelated. (In a captured graph all readers are pending.)
    if (!capturing(thread_) && !all_read(*node.blocks()[position].buffer)) return false;
    return owned_alone(node, position);
  }

  // For an addition in place: `i`, if that operand is given up too and neither operand has pending
  // readers. The task that makes operand i may then do the addition.
  int find_term(std::uint32_t position, int i) const {
    const auto index = static_cast<std::size_t>(i);
    if (!(donated_ >> i & 1u)) return -1;
    const StoredNode *term = stored_of(step_.in[index]), *sum = stored_of(step_.in[1 - index]);
    if (!owned_alone(*term, position) || !all_read(*term->blocks()[position].buffer) ||
        !all_read(*sum->blocks()[position].buffer))
      return -1;
    return i;
  }

  static bool all_read(const Buffer& buffer) {
    const auto reads = buffer.uses();
    return reads.empty() ||
           std::all_of(reads.begin(), reads.end(), [](const Event& e) { return e.done(); });
  }

  // True if only the entries of this cohort in this one table name the buffer.
  bool owned_alone(const StoredNode& node, std::uint32_t position) const {
    const Block& block = node.blocks()[position];
    if (block.buffer->owned_by(1)) return true;
    if (cohorts_.identity) return false;
    // The leader is the first of its cohort.
    std::int32_t own_entries = 0;
    for (std::uint32_t p = position; p < node.count; ++p) {
      if (cohorts_.leader[p] != position) continue;
      const Block& other = node.blocks()[p];
      if (other.buffer == block.buffer && other.offset == block.offset &&
          block.buffer->owned_by(++own_entries))
        return true;
    }
    return false;
  }

  OwnedCall* own(KernelFn run, void* scratch) const {
    return new OwnedCall(call_, run, scratch, site_, step_.in);
  }

  const Step& step_;
  detail::ThreadState& thread_;
  Types out_types_;
  const Cohorts& cohorts_;
  const DeviceKind kind_;
  const Kernel& kernel_;
  // Bit i: the caller gave up operand i, a stored value. Set only for primitives that work in
  // place, and with one result only for operands of as many bytes as the result.
  std::uint32_t donated_ = 0;
  InlineVector<const void*, 4> in_;       // for the current leader
  InlineVector<const Block*, 4> tables_;  // of the operands; null for literals
  InlineVector<void*, 2> out_;            // for the current leader
  struct Result {
    Block* table;
    std::int64_t bytes;
    std::uint32_t reusable;  // the donated operands that the result may overwrite
    // The operand whose memory the current leader's result has, or -1; set where taken_ is not 0.
    int reused;
  };
  InlineVector<Result, 2> results_;
  bool any_reusable_ = false;
  BufferRef scratch_;        // for the current leader, as all that follows
  std::uint32_t taken_ = 0;  // bit i: a result has the memory of operand i
  int term_ = -1;  // of an addition in place: the operand given up to it (find_term), or -1
  KernelCall call_;
  OpSite& site_;
  std::int64_t cost_ns_;
  const char* name_;
  bool foreign_;
  // Whether a stream that runs the task at once would do nothing else besides (a stream of the CPU,
  // where nobody records a timeline): the kernel is then called without a task.
  bool plain_ = false;
  bool at_once_ = false;        // plain_, and each stream runs the task at once
  std::exception_ptr failure_;  // the exception of the current leader's call
};

// Runs the kernel of each leader. Devices with the same value share the leader's block.
[[gnu::always_inline]] inline void run_kernels(const Step& step, Types out_types,
                                               std::span<StoredNode* const> out, OpSite& site,
                                               detail::ThreadState& thread) {
  const Cohorts& cohorts = step.mesh.cohorts(step.varying);
  LeaderLaunch leader(step, out_types, out, cohorts, site, thread);
  {
    std::lock_guard lock(step.mesh.backend().submit_mutex());
    leader.run();
  }
  count(Counter::kernel_launches, static_cast<std::int64_t>(cohorts.leaders.size()), thread);
  if (cohorts.identity) return;
  for (StoredNode* node : out) {
    const std::span<Block> blocks = node->blocks();
    for (std::uint32_t p = 0; p < node->count; ++p)
      if (cohorts.leader[p] != p) blocks[p] = blocks[cohorts.leader[p]];
  }
}

// Every kernel and every collective is launched here.
void launch_step(const Step& step, Types out_types, std::span<StoredNode* const> out,
                 detail::ThreadState& thread) {
  const bool group = step.primitive.group != nullptr;
  if (step.primitive.view && !group && run_as_view(step, out_types, out)) return;
  if (step.primitive.dynamic_view && !group && run_as_dynamic_view(step, out_types, out)) {
    // The counter must not depend on whether the scalars were computed in time.
    const std::size_t launches = step.mesh.cohorts(step.varying).leaders.size();
    return count(Counter::kernel_launches, static_cast<std::int64_t>(launches), thread);
  }
  OpSite site{&step.primitive, &step.mesh, 0, OpSite::next_number(), step.source};
  if (group) {
    run_group(step, site, out);
  } else {
    run_kernels(step, out_types, out, site, thread);
  }
  if (checks_nans()) [[unlikely]]
    refuse_nans(site, out);
}

}  // namespace

void run_step(const Step& step, Types out_types, std::span<StoredNode* const> out) {
  detail::ThreadState& thread = this_thread();
  detail::refuse_in_task(step.primitive.name, thread);
  try {
    if (labels_tasks(thread)) [[unlikely]] {
      const LabelledStep labelled(step, out_types);
      launch_step(step, out_types, out, thread);
      return;
    }
    launch_step(step, out_types, out, thread);
  } catch (const OutOfMemory& e) {
    rethrow_at(e, step.primitive.name, step.source);
  }
}

}  // namespace shmap
