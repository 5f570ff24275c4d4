// Checkpoints: trees of arrays in a folder, written atomically, read back on any mesh.
//
// A folder holds the last `keep` checkpoints, a file each: checkpoint-00000001.shmap, -00000002 …
// Each block of a sharded array is written once, from where it lies, whichever devices have copies
// of it. Every MiB of it has a checksum, which reading holds it against.
//
// A checkpoint takes its name only once it is whole and on the disk (as files of shmap/io.h): of
// one that was interrupted, by a kill at any moment, a full disk or a loss of power, there is
// nothing but a draft, which a later save removes, and the checkpoints before it stand.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shmap/io.h"
#include "shmap/tree.h"

namespace shmap {

struct CheckpointOptions {
  int keep = 1;  // checkpoints that the folder has at most afterwards, this one included
  // As in FileOptions; of an asynchronous save it is called on the thread that writes.
  std::function<void(std::int64_t bytes, std::int64_t total)> progress = {};
};

namespace detail {
void save_checkpoint(const std::string& dir, FlatTree tree, CheckpointOptions options,
                     SourceLine source);
std::vector<Array> load_checkpoint(const std::string& path, const FlatTree& like,
                                   const FileOptions& options, SourceLine source);

// A checkpoint that is being written on a thread of its own.
struct PendingCheckpointImpl;
}  // namespace detail

class PendingCheckpoint {
 public:
  PendingCheckpoint() noexcept;  // of nothing: done
  explicit PendingCheckpoint(std::unique_ptr<detail::PendingCheckpointImpl> impl);
  PendingCheckpoint(PendingCheckpoint&&) noexcept;
  PendingCheckpoint& operator=(PendingCheckpoint&&) noexcept;  // waits for the one it had
  // Waits. An error that nobody waited for is a warning then.
  ~PendingCheckpoint();
  bool done() const;  // written, or failed; does not block
  // Blocks until it is written, and throws what went wrong; once.
  void wait();

 private:
  std::unique_ptr<detail::PendingCheckpointImpl> impl_;
};

namespace detail {
PendingCheckpoint save_checkpoint_async(const std::string& dir, FlatTree tree,
                                        CheckpointOptions options, SourceLine source);
}

// Makes the folder, and those above it, where they are missing. Blocks until the checkpoint would
// survive a loss of power. TypeError for traced values and keys; ValueError for `keep` below 1;
// Error where the system refuses. Errors leave the checkpoints before it as they are. Saves into
// one folder are written in the order of the calls: this one waits for asynchronous ones before it.
//
// Where an array lies in several processes, this is a collective of these, which see one folder:
// each writes its own blocks, the first also what each process has for itself, and gives the
// checkpoint its name once all have written and synced. What one of them throws is an Error in the
// others that names it; one that dies a CollectiveError.
template <Tree T>
void save_checkpoint(const std::string& dir, const T& tree, CheckpointOptions options = {},
                     SourceLine source = SourceLine::current()) {
  detail::FlatTree flat;
  detail::flatten(tree, flat, flat.node);
  detail::save_checkpoint(dir, std::move(flat), std::move(options), source);
}

// The same while the program goes on: the arrays are held as they are now, and nothing that is
// computed later changes them. (An array that is held is not overwritten where it is donated.) What
// the caller could have been told at once, it is: only errors of writing come out of wait().
// Several may be in flight: in one folder each is written after those before it, whether these
// failed or not.
template <Tree T>
[[nodiscard]] PendingCheckpoint save_checkpoint_async(const std::string& dir, const T& tree,
                                                      CheckpointOptions options = {},
                                                      SourceLine source = SourceLine::current()) {
  detail::FlatTree flat;
  detail::flatten(tree, flat, flat.node);
  return detail::save_checkpoint_async(dir, std::move(flat), std::move(options), source);
}

// The newest checkpoint of the folder, or the one of that file, as a tree like `like`: its
// structure and static members, and each array with the shape, dtype and sharding that `like` has
// there; an abstract array (shmap/eval_shape.h) comes onto the default device. Only the parts that
// this process needs are read. ValueError: another structure, another shape or dtype (names the
// leaf and both), no checkpoint there, a damaged one: it names the file and what is wrong, and the
// checkpoint before it, which can be loaded by its own path.
template <Tree T>
arg_t<T> load_checkpoint(const std::string& path, const T& like, FileOptions options = {},
                         SourceLine source = SourceLine::current()) {
  detail::FlatTree flat;
  detail::flatten(like, flat, flat.node);
  std::vector<Array> leaves = detail::load_checkpoint(path, flat, options, source);
  std::size_t next = 0;
  return detail::rebuild(like, leaves, next);
}

}  // namespace shmap
