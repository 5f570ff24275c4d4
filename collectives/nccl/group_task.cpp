#include "collectives/nccl/group_task.h"

#include "collectives/nccl/roll_call.h"
#include "core/runtime/launch.h"
#include "core/runtime/step_label.h"
#include "cuda/backend/backend.h"
#include "cuda/backend/stream.h"
#include "cuda/device/completion.h"

namespace shmap::nccl {

namespace {

int gpu_of(const Stream& stream) {
  return static_cast<const cuda::CudaStream&>(stream).queue().gpu();
}

}  // namespace

std::vector<int> gpus_of(const detail::MeshImpl& mesh) {
  std::vector<int> gpus;
  for (std::uint32_t p = 0; p < mesh.local_count(); ++p)
    gpus.push_back(gpu_of(*mesh.local(p).comm));
  return gpus;
}

GroupTask::GroupTask(const GroupBlocks& blocks, const std::vector<std::uint32_t>& clique)
    : g_(blocks), clique_(clique), args_(std::make_unique<Args>()) {
  args_->site = {{&blocks.primitive, &blocks.mesh, 0, blocks.number, blocks.source},
                 &blocks.cliques};
  args_->ranks.reserve(clique.size());  // add() returns references
}

Rank& GroupTask::add(std::uint32_t rank) {
  const std::uint32_t p = clique_[rank];
  // An error of the calls as a group names the first device that takes part.
  if (args_->ranks.empty()) args_->site.op.position = p;
  Stream* stream = g_.mesh.local(p).comm;
  args_->streams.push_back(stream);
  uses_.emplace_back();
  Rank& r = args_->ranks.emplace_back();
  r.number = static_cast<int>(rank);
  r.position = p;
  r.gpu = gpu_of(*stream);
  return r;
}

Block GroupTask::write(const Rank& rank, std::int64_t bytes) {
  Block block;
  block.buffer = g_.mesh.local(rank.position).space->allocate(bytes, MemorySpace::For::tasks);
  uses_[static_cast<std::size_t>(&rank - args_->ranks.data())].writes.push_back(block.buffer.get());
  return block;
}

void GroupTask::make_scratch(std::byte* Rank::*what, std::int64_t bytes) {
  for (Rank& rank : args_->ranks) {
    scratch_.push_back(write(rank, bytes).buffer);
    rank.*what = static_cast<std::byte*>(scratch_.back()->data());
  }
}

void GroupTask::note_move(std::uint32_t from, std::uint32_t to) {
  knows_moves_ = true;
  if (from == Cliques::kElsewhere || to == Cliques::kElsewhere || !labels_tasks()) return;
  moves_.emplace_back(g_.mesh.local(from).index, g_.mesh.local(to).index);
}

const char* GroupTask::name() const {
  if (!labels_tasks()) return g_.primitive.name;
  if (knows_moves_) return collective_task_name(g_.primitive.name, g_.number, moves_);
  std::vector<std::pair<int, int>> moves;
  const auto device = [&](const Rank& r) { return g_.mesh.local(r.position).index; };
  for (const Rank& to : args_->ranks)
    for (const Rank& from : args_->ranks)
      if (from.position != to.position) moves.emplace_back(device(from), device(to));
  return collective_task_name(g_.primitive.name, g_.number, std::move(moves));
}

void GroupTask::enqueue(Ref<CommSet> comms) {
  if (args_->ranks.empty() || args_->body == nullptr) return;
  for (Rank& rank : args_->ranks) rank.comm = comms->comm(rank.position);
  args_->comms = std::move(comms);
  std::vector<TaskWaits> waits(uses_.size());
  for (std::size_t i = 0; i < uses_.size(); ++i)
    detail::collect_waits(uses_[i].reads, uses_[i].writes, waits[i]);
  Task task;
  task.run = run;
  task.drop = [](void* args) noexcept { delete static_cast<Args*>(args); };
  task.name = name();
  task.bytes = bytes_;
  const std::vector<Stream*> streams = args_->streams;
  const bool across = args_->comms->across();
  task.args = args_.release();  // the backend takes ownership in every case
  const std::vector<Event> done =
      static_cast<cuda::CudaBackend&>(g_.mesh.backend()).enqueue_each(streams, task, waits);
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    if (done[i].record() == nullptr || !across || capturing()) continue;
    const auto& task_done = static_cast<const cuda::TaskCompletion&>(*done[i].record());
    if (task_done.queue() != nullptr) note_enqueued(*task_done.queue(), task_done.number());
  }
  // The launch is noted only now: noting asks whether the parts are done, and a part that has ended
  // would count as done before it is known to be in doubt.
  for (std::size_t i = 0; i < uses_.size(); ++i)
    if (done[i].record() != nullptr) detail::note_launch(done[i], uses_[i].reads, uses_[i].writes);
}

void GroupTask::run(void* args, const TaskContext& context) {
  Args& self = *static_cast<Args*>(args);
  for (Rank& rank : self.ranks) {
    CollectiveSite site = self.site;
    site.op.position = rank.position;
    try {
      reach_collective(site, context.part);
    } catch (...) {
      rethrow_from(site);
    }
  }
  try {
    self.ranks[0].stream = static_cast<cudaStream_t>(context.native);
    for (std::size_t i = 1; i < self.ranks.size(); ++i)
      self.ranks[i].stream = cuda::native_in_group(*self.streams[i]);
    self.body->run(self.ranks);
  } catch (...) {
    rethrow_from(self.site);
  }
}

}  // namespace shmap::nccl
