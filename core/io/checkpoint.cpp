// Saving checkpoints, in the call or on a thread.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <optional>
#include <thread>

#include "core/array/tree_paths.h"
#include "core/base/crc.h"
#include "core/base/draft_file.h"
#include "core/base/hash_text.h"
#include "core/base/signals_blocked.h"
#include "core/base/warning.h"
#include "core/device/fork_guard.h"
#include "core/io/array_blocks.h"
#include "core/io/checkpoint_file.h"
#include "core/io/checkpoint_folder.h"
#include "core/io/joint_save.h"
#include "core/io/json_reader.h"
#include "core/io/save_turn.h"
#include "core/ir/node.h"
#include "core/runtime/launch.h"
#include "shmap/saved_checkpoint.h"

namespace shmap {

namespace {

// A checkpoint to be written, checked.
struct Snapshot {
  std::string dir;
  std::vector<Array> leaves;
  io::CheckpointIndex index;
  CheckpointOptions options;
  std::optional<io::JointSave> joint = {};  // set if several processes write it
};

Snapshot take_snapshot(const std::string& dir, detail::FlatTree tree, CheckpointOptions options,
                       const char* what, SourceLine source) {
  if (options.keep < 1) {
    throw ValueError("save_checkpoint: keep is " + std::to_string(options.keep) +
                     ": 1 or more is wanted");
  }
  Snapshot s{dir, std::move(tree.leaves), {}, std::move(options)};
  const std::vector<std::string> paths = leaf_paths(tree.node, "");
  for (std::size_t i = 0; i < s.leaves.size(); ++i) {
    const Array& x = s.leaves[i];
    const Node& node = checked_node(x, "save_checkpoint");
    const std::string which =
        "save_checkpoint: leaf " + io::quoted_bytes(paths[i]) + " of type " + to_string(node.type);
    if (!io::is_utf8(paths[i]))
      throw ValueError(which + ": its name is no UTF-8, and an index with it could not be read");
    if (node.type.dtype() == DType::prng_key)
      throw TypeError(
          which +
          ": keys are not written: save their words, "
          "extend::random_unwrap(key), of which extend::random_wrap makes the keys again");
    if (node.kind != NodeKind::literal && (node.kind != NodeKind::stored || node.trace != 0)) {
      throw TypeError(which +
                      " has no value of its own: it is a traced value or a block in a "
                      "body. Save outside of the function");
    }
    io::CheckpointLeaf leaf;
    leaf.path = paths[i];
    leaf.dtype = node.type.dtype();
    leaf.shape = node.type.dims();
    const auto* stored =
        node.kind == NodeKind::stored ? static_cast<const StoredNode*>(&node) : nullptr;
    for (std::size_t d = 0; d < leaf.shape.size(); ++d) {
      const bool split = stored && leaf.shape.num_elements() > 0;
      leaf.grid.push_back(split ? stored->sharding->parts(d) : 1);
    }
    const std::int64_t chunks = s.index.chunks_of(leaf) * leaf.blocks();
    leaf.crcs.resize(static_cast<std::size_t>(chunks));
    s.index.leaves.push_back(std::move(leaf));
  }
  io::place_leaves(s.index, "save_checkpoint");
  if (io::JointSave::wanted(s.leaves)) {
    HashText check;
    check.add(dir).add(static_cast<std::uint64_t>(s.options.keep));
    check.add(io::make_checkpoint_head(s.index));
    s.joint.emplace(what, s.leaves, check.value(), source);
  }
  return s;
}

// Writes one leaf's blocks, and computes the checksums of their chunks.
class LeafWriter {
 public:
  LeafWriter(DraftFile& draft, io::CheckpointIndex& index, io::CheckpointLeaf& leaf)
      : draft_(draft),
        index_(index),
        leaf_(leaf),
        block_(leaf.block_shape()),
        block_bytes_(leaf.block_bytes()) {}

  // The pieces of a block must come in order.
  void write(std::span<const Slice> box, const void* src) {
    std::int64_t bytes = itemsize(leaf_.dtype), number = 0;
    for (std::size_t d = 0; d < box.size(); ++d) {
      bytes *= box[d].stop - box[d].start;
      number = number * leaf_.grid[d] + box[d].start / block_[d];
    }
    if (number != number_) {
      number_ = number;
      at_ = 0;
    }
    const auto* from = static_cast<const std::byte*>(src);
    const std::int64_t first = number * index_.chunks_of(leaf_);
    while (bytes > 0) {
      const std::int64_t chunk = at_ / index_.chunk;
      const std::int64_t n =
          std::min({bytes, (chunk + 1) * index_.chunk - at_, io::kCheckpointPiece});
      std::uint32_t& crc = leaf_.crcs[static_cast<std::size_t>(first + chunk)];
      crc = crc32c(from, static_cast<std::size_t>(n), crc);
      draft_.write(leaf_.offset + number * block_bytes_ + at_, from, n);
      from += n;
      at_ += n;
      bytes -= n;
    }
  }

 private:
  DraftFile& draft_;
  io::CheckpointIndex& index_;
  io::CheckpointLeaf& leaf_;
  Shape block_;
  std::int64_t block_bytes_, number_ = -1, at_ = 0;
};

// The draft of the folder's next checkpoint.
struct Draft {
  io::CheckpointFolder folder;
  std::vector<std::int64_t> before;  // the numbers of the checkpoints that exist
  std::string name;
  std::optional<DraftFile> file;

  Draft(const Snapshot& s, io::CheckpointFolder::Make make) : folder(s.dir, make) {}

  void begin(const Snapshot& s) {
    before = folder.numbers();
    if (!before.empty() && before.back() == INT64_MAX)
      throw ValueError(folder.name() +
                       ": the number of its newest checkpoint is the last there is");
    name = io::CheckpointFolder::file_name(before.empty() ? 1 : before.back() + 1);
    const std::string what = "checkpoint '" + s.dir + "/" + name + "'";
    file.emplace(folder.fd(), 0666, /*exact=*/false, what);
    if (ftruncate(file->fd(), static_cast<off_t>(s.index.bytes)) != 0)
      throw_errno(what, "cannot set the size");
  }
  void commit(const Snapshot& s) {
    const std::string head = io::make_checkpoint_head(s.index);
    file->write(0, reinterpret_cast<const std::byte*>(head.data()),
                static_cast<std::int64_t>(head.size()));
    file->commit(name, /*durable=*/true);
    folder.keep(before, s.options.keep - 1);
  }
};

// Waits before the draft is made, so that errors of the values leave no draft.
void wait_for_values(const Snapshot& s) {
  for (const Array& x : s.leaves) x.block_until_ready(SourceLine{});
}

void write_leaves(Snapshot& s, DraftFile& draft, io::ProgressCount& progress) {
  for (std::size_t i = 0; i < s.leaves.size(); ++i) {
    LeafWriter writer(draft, s.index, s.index.leaves[i]);
    const io::WriteBox write = [&](std::span<const Slice> box, const void* src) {
      writer.write(box, src);
    };
    if (s.joint)
      s.joint->write(i, s.leaves[i], progress, write);
    else
      io::write_blocks(s.leaves[i], "save_checkpoint", progress, write);
    s.leaves[i] = Array();  // releases the array, so that another owner may use its memory in place
  }
}

void write_snapshot(Snapshot& s) {
  FileOptions options;
  options.progress = s.options.progress;
  using Make = io::CheckpointFolder::Make;
  if (!s.joint) {
    std::int64_t total = 0;
    for (const Array& x : s.leaves) total += node_of(x)->type.nbytes();
    io::ProgressCount progress(options, total);
    wait_for_values(s);
    Draft draft(s, Make::yes);
    draft.begin(s);
    write_leaves(s, *draft.file, progress);
    return draft.commit(s);
  }
  // One process computes the checksum of a chunk, and the others have 0 for it, so that the leader
  // joins the checksums by `or`.
  std::vector<std::uint32_t> sums;
  for (const io::CheckpointLeaf& leaf : s.index.leaves) sums.resize(sums.size() + leaf.crcs.size());
  std::optional<Draft> draft;
  io::JointSave::Steps steps;
  steps.begin = [&] {
    wait_for_values(s);
    draft.emplace(s, Make::yes).begin(s);
    return draft->file->name();
  };
  steps.write = [&](const std::string& name) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < s.leaves.size(); ++i) total += s.joint->bytes(i, s.leaves[i]);
    io::ProgressCount progress(options, total);
    if (!draft) {
      wait_for_values(s);
      Draft& d = draft.emplace(s, Make::no);
      d.file.emplace(d.folder.fd(), name, "checkpoint in " + d.folder.name());
    }
    write_leaves(s, *draft->file, progress);
    if (!s.joint->leads()) draft->file->sync();
    auto to = sums.begin();
    for (const io::CheckpointLeaf& leaf : s.index.leaves)
      to = std::copy(leaf.crcs.begin(), leaf.crcs.end(), to);
  };
  steps.commit = [&] {
    auto from = sums.begin();
    for (io::CheckpointLeaf& leaf : s.index.leaves) {
      const auto count = static_cast<std::ptrdiff_t>(leaf.crcs.size());
      std::copy(from, from + count, leaf.crcs.begin());
      from += count;
    }
    draft->commit(s);
  };
  s.joint->run(steps, std::as_writable_bytes(std::span(sums)));
}

}  // namespace

namespace detail {

struct PendingCheckpointImpl {
  explicit PendingCheckpointImpl(Snapshot s, SourceLine line)
      : snapshot(std::move(s)), source(line), turn(std::in_place, snapshot.dir) {}
  void run() noexcept {
    turn->wait();
    try {
      io::with_line("save_checkpoint_async", snapshot.dir, source,
                    [&] { write_snapshot(snapshot); });
    } catch (...) {
      error = std::current_exception();
    }
    snapshot.leaves.clear();
    // Set before the next save may begin: done() of a later save then implies done() of this one.
    done.store(true, std::memory_order_release);
    turn.reset();
  }
  Snapshot snapshot;
  SourceLine source;
  std::optional<io::SaveTurn> turn;  // destroyed by the thread that writes
  std::exception_ptr error;          // written before `done`
  std::atomic<bool> done{false};
  std::thread thread;
};

void save_checkpoint(const std::string& dir, FlatTree tree, CheckpointOptions options,
                     SourceLine source) {
  io::with_line("save_checkpoint", dir, source, [&] {
    refuse_in_task("save_checkpoint");
    ensure_started();
    Snapshot s = take_snapshot(dir, std::move(tree), std::move(options), "save_checkpoint", source);
    io::SaveTurn turn(dir);
    turn.wait();
    write_snapshot(s);
  });
}

PendingCheckpoint save_checkpoint_async(const std::string& dir, FlatTree tree,
                                        CheckpointOptions options, SourceLine source) {
  return io::with_line("save_checkpoint_async", dir, source, [&] {
    refuse_in_task("save_checkpoint_async");
    ensure_started();
    auto impl = std::make_unique<PendingCheckpointImpl>(
        take_snapshot(dir, std::move(tree), std::move(options), "save_checkpoint_async", source),
        source);
    const SignalsBlocked blocked;
    try {
      impl->thread = std::thread([at = impl.get()] { at->run(); });
    } catch (const std::system_error& e) {
      throw Error(std::string("save_checkpoint_async: no thread to write on: ") + e.what());
    }
    return PendingCheckpoint(std::move(impl));
  });
}

}  // namespace detail

PendingCheckpoint::PendingCheckpoint() noexcept = default;
PendingCheckpoint::PendingCheckpoint(std::unique_ptr<detail::PendingCheckpointImpl> impl)
    : impl_(std::move(impl)) {}
PendingCheckpoint::PendingCheckpoint(PendingCheckpoint&&) noexcept = default;
PendingCheckpoint& PendingCheckpoint::operator=(PendingCheckpoint&& o) noexcept {
  if (this == &o) return *this;
  PendingCheckpoint before;
  before.impl_ = std::move(impl_);
  impl_ = std::move(o.impl_);
  return *this;
}

PendingCheckpoint::~PendingCheckpoint() {
  if (!impl_) return;
  if (forked()) {  // the thread that writes, and what it holds, are the parent's
    (void)impl_.release();
    return;
  }
  try {
    wait();
  } catch (const std::exception& e) {
    warn(std::string("a checkpoint was not written, and wait() was not called: ") + e.what());
  } catch (...) {
    warn("a checkpoint was not written, and wait() was not called");
  }
}

bool PendingCheckpoint::done() const {
  return !impl_ || impl_->done.load(std::memory_order_acquire);
}

void PendingCheckpoint::wait() {
  if (!impl_) return;
  if (forked()) throw_forked();
  impl_->thread.join();
  const std::exception_ptr error = impl_->error;
  impl_.reset();
  if (error) std::rethrow_exception(error);
}

}  // namespace shmap
