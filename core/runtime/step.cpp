#include "core/runtime/step.h"

#include <algorithm>
#include <memory>

#include "core/base/counters.h"
#include "core/base/inline_vector.h"
#include "core/runtime/launch.h"
#include "core/runtime/op_site.h"

namespace shmap {

namespace {

// Rates that turn work into an estimate of time on one core; only the decision to queue hangs on
// them.
constexpr double kBytesPerNs = 12;
constexpr double kFlopsPerNs = 60;

std::int64_t estimate_ns(const Step& step, Types out_types) {
  if (step.primitive.cost) {
    const Cost c = step.primitive.cost(step.in_types, step.params, out_types);
    return static_cast<std::int64_t>(c.flops / kFlopsPerNs + c.bytes / kBytesPerNs);
  }
  double bytes = 0;
  for (const ShapedArray& t : step.in_types) bytes += static_cast<double>(t.nbytes());
  for (const ShapedArray& t : out_types) bytes += static_cast<double>(t.nbytes());
  return static_cast<std::int64_t>(bytes / kBytesPerNs);
}

// A kernel call that outlives its step: queued, or captured into a graph.
struct OwnedCall {
  KernelFn run;
  OpSite site;
  std::unique_ptr<Params> params;
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<ShapedArray> types;  // operands, then results
  std::vector<std::uint64_t> literals;
  void* scratch = nullptr;
};

// As a task: runs the OwnedCall that its arguments are.
void run_owned(void* args, const TaskContext& context) {
  auto* self = static_cast<OwnedCall*>(args);
  const std::size_t n = self->in.size();
  KernelCall c{self->in, self->out, Types(self->types).first(n), Types(self->types).subspan(n),
               *self->params};
  c.part = context.part;
  c.parts = context.parts;
  c.native = context.native;
  c.scratch = self->scratch;
  run_kernel(self->run, c, self->site);
}
void drop_owned(void* args) noexcept { delete static_cast<OwnedCall*>(args); }

// What happens in one leader's place of the table: run() for each of them in turn.
class LeaderLaunch {
 public:
  LeaderLaunch(const Step& step, Types out_types, std::span<StoredNode* const> out,
               const Cohorts& cohorts)
      : step_(step),
        out_types_(out_types),
        out_(out),
        cohorts_(cohorts),
        kernel_(kernel_of(step)),
        may_reuse_(step.primitive.in_place && step.donated != 0),
        in_(step.in.size()),
        results_(out.size()),
        reads_(step.in.size()),
        writes_(out.size()),
        call_{in_.span(), results_.span(), step.in_types, out_types, step.params},
        site_{&step.primitive, &step.mesh, 0, OpSite::next_number(), step.source} {
    task_.cost_ns = estimate_ns(step, out_types);
    task_.name = step.primitive.name;
  }

  const OpSite& site() const { return site_; }

  void run(std::uint32_t position) {
    const LocalDevice& device = step_.mesh.local(position);
    Stream& stream = *device.compute;
    bind_blocks(position, *device.space);
    site_.position = position;
    std::vector<Event> waits;
    if (!detail::nothing_pending(reads(), writes_)) detail::collect_waits(reads(), writes_, waits);
    if (waits.empty() && stream.runs_at_once(task_.cost_ns)) {
      Task task = task_;
      task.args = this;
      task.run = run_here;
      return finish(stream.run_at_once(task), reads(), writes_);
    }
    enqueue(device, stream, waits);
  }

 private:
  static void run_here(void* args, const TaskContext& context) {
    auto* self = static_cast<LeaderLaunch*>(args);
    self->call_.native = context.native;
    run_kernel(self->kernel_.run, self->call_, self->site_);
  }

  std::span<Buffer* const> reads() const { return reads_.span().first(n_reads_); }

  // Takes the addresses of the operands, and gives the results their buffers.
  void bind_blocks(std::uint32_t position, MemorySpace& space) {
    const int reused = may_reuse_ ? find_reusable(position) : -1;
    n_reads_ = 0;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const Node* node = node_of(step_.in[i]);
      if (node->kind == NodeKind::literal) {
        in_[i] = static_cast<const LiteralNode*>(node)->value;
        continue;
      }
      const Block& block = static_cast<const StoredNode*>(node)->blocks()[position];
      in_[i] = block.data();
      if (static_cast<int>(i) != reused) reads_[n_reads_++] = block.buffer.get();
    }
    for (std::size_t o = 0; o < results_.size(); ++o) {
      Block& block = out_[o]->blocks()[position];
      if (o == 0 && reused >= 0) {
        block = stored_of(step_.in[static_cast<std::size_t>(reused)])->blocks()[position];
      } else {
        block.buffer = space.allocate(out_types_[o].nbytes());
        block.offset = 0;
      }
      results_[o] = block.data();
      writes_[o] = block.buffer.get();
    }
  }

  // As a task of its own, after what is pending.
  void enqueue(const LocalDevice& device, Stream& stream, std::span<const Event> waits) {
    Task task = task_;
    // With as many leaders as workers each call is one part: devices are what runs in parallel.
    const int workers = step_.mesh.backend().workers();
    if (kernel_.parts && cohorts_.leaders.size() < static_cast<std::size_t>(workers)) {
      task.parts = kernel_.parts(call_, workers);
    }
    task.run = run_owned;
    task.drop = drop_owned;
    if (task.parts > 1 && kernel_.scratch) {
      KernelCall split = call_;
      split.parts = task.parts;
      if (const std::int64_t bytes = kernel_.scratch(split)) {
        const BufferRef scratch = device.space->allocate(bytes);
        Buffer* const shared[] = {scratch.get()};
        task.args = own(kernel_.run, scratch->data());
        enqueue_after(stream, task, reads(), shared);
        task.parts = 1;
        task.cost_ns = 0;
        task.args = own(kernel_.finish, scratch->data());
        enqueue_after(stream, task, shared, writes_);
        return;
      }
    }
    task.args = own(kernel_.run, nullptr);
    finish(stream.enqueue(task, waits), reads(), writes_);
  }

  static const Kernel& kernel_of(const Step& step) {
    const Kernel& kernel = step.primitive.kernels[static_cast<int>(BackendKind::cpu)];
    if (!kernel.run) {
      throw DeviceError(std::string(step.primitive.name) + " has no kernel for the backend '" +
                        step.mesh.backend().name() + "'");
    }
    return kernel;
  }

  static void finish(const Event& event, std::span<Buffer* const> reads,
                     std::span<Buffer* const> writes) {
    if (event.record() != nullptr) detail::note_launch(event, reads, writes);
  }

  static void enqueue_after(Stream& stream, const Task& task, std::span<Buffer* const> reads,
                            std::span<Buffer* const> writes) {
    std::vector<Event> waits;
    detail::collect_waits(reads, writes, waits);
    finish(stream.enqueue(task, waits), reads, writes);
  }

  // The donated operand whose buffer result 0 may overwrite, or -1. The buffer must have one owner
  // over all entries and handles: nobody but the entries of this cohort in this one table may name
  // it.
  int find_reusable(std::uint32_t position) const {
    const std::int64_t wanted = out_types_[0].nbytes();
    for (std::size_t i = 0; i < step_.in.size(); ++i) {
      if (!(step_.donated >> i & 1u)) continue;
      if (step_.primitive.in_place_operand >= 0 &&
          step_.primitive.in_place_operand != static_cast<int>(i))
        continue;
      const StoredNode* node = stored_of(step_.in[i]);
      if (!node || step_.in_types[i].nbytes() != wanted ||
          itemsize(step_.in_types[i].dtype()) != itemsize(out_types_[0].dtype())) {
        continue;
      }
      const Block& block = node->blocks()[position];
      // Behind a reader that is still to run the result would have to wait, and fail where that
      // one fails, which it has nothing to do with. (A captured graph fails as a whole, and there
      // all readers are still to run.)
      const auto reads = block.buffer->uses();
      if (!capturing() &&
          !std::all_of(reads.begin(), reads.end(), [](const Event& e) { return e.done(); }))
        continue;
      const std::int32_t owners = block.buffer.use_count();
      std::int32_t own_entries = 0;
      if (owners == 1) {
        own_entries = 1;
      } else {
        for (std::uint32_t p = 0; p < node->count; ++p) {
          if (cohorts_.leader[p] != position) continue;
          const Block& other = node->blocks()[p];
          if (other.buffer == block.buffer && other.offset == block.offset) ++own_entries;
        }
      }
      if (own_entries != owners) continue;
      return static_cast<int>(i);
    }
    return -1;
  }

  OwnedCall* own(KernelFn run, void* scratch) const {
    auto owned = std::make_unique<OwnedCall>();
    owned->run = run;
    owned->scratch = scratch;
    owned->site = site_;
    owned->params = step_.params.clone();
    owned->in.assign(call_.in.begin(), call_.in.end());
    owned->out.assign(call_.out.begin(), call_.out.end());
    owned->types.assign(call_.in_types.begin(), call_.in_types.end());
    owned->types.insert(owned->types.end(), call_.out_types.begin(), call_.out_types.end());
    owned->literals.resize(step_.in.size());
    for (std::size_t i = 0; i < step_.in.size(); ++i) {
      const Node* node = node_of(step_.in[i]);
      if (node->kind != NodeKind::literal) continue;
      __builtin_memcpy(&owned->literals[i], static_cast<const LiteralNode*>(node)->value, 8);
      owned->in[i] = &owned->literals[i];
    }
    return owned.release();
  }

  const Step& step_;
  Types out_types_;
  std::span<StoredNode* const> out_;
  const Cohorts& cohorts_;
  const Kernel& kernel_;
  const bool may_reuse_;
  // Of the leader at hand.
  InlineVector<const void*, 4> in_;
  InlineVector<void*, 2> results_;
  InlineVector<Buffer*, 4> reads_;
  InlineVector<Buffer*, 2> writes_;
  std::size_t n_reads_ = 0;
  KernelCall call_;
  OpSite site_;
  Task task_;
};

// Where the result is part of operand 0, the table says so and nothing runs.
bool run_as_view(const Step& step, Types out_types, std::span<StoredNode* const> out) {
  if (!step.primitive.view || step.in.empty()) return false;
  const StoredNode* in = stored_of(step.in[0]);
  if (!in) return false;
  const std::int64_t offset = step.primitive.view(step.in_types[0], step.params, out_types[0]);
  if (offset < 0) return false;
  for (std::uint32_t p = 0; p < in->count; ++p) {
    out[0]->blocks()[p] = in->blocks()[p];
    out[0]->blocks()[p].offset += offset;
  }
  return true;
}

}  // namespace

void run_step(const Step& step, Types out_types, std::span<StoredNode* const> out) {
  detail::refuse_in_task(step.primitive.name);
  if (run_as_view(step, out_types, out)) return;
  const Cohorts& cohorts = step.mesh.cohorts(step.varying);
  LeaderLaunch leader(step, out_types, out, cohorts);
  {
    std::lock_guard lock(step.mesh.backend().submit_mutex());
    for (std::uint32_t position : cohorts.leaders) leader.run(position);
  }
  count(Counter::kernel_launches, static_cast<std::int64_t>(cohorts.leaders.size()));
  if (!cohorts.identity) {
    for (StoredNode* node : out) {
      const std::span<Block> blocks = node->blocks();
      for (std::uint32_t p = 0; p < node->count; ++p)
        if (cohorts.leader[p] != p) blocks[p] = blocks[cohorts.leader[p]];
    }
  }
  check_nans(leader.site(), out);
}

}  // namespace shmap
