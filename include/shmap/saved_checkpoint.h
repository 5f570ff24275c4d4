// Checkpoints: trees of arrays saved in a folder, written atomically, and loaded onto any mesh.
//
// A folder holds the last `keep` checkpoints, one file each: checkpoint-00000001.shmap, -00000002 …
// Each block of a sharded array is written once, however many devices hold a copy of it, and the
// array is never copied as a whole. Every MiB of data has a checksum, which loading checks.
//
// The file of a checkpoint gets its name only when it is complete and on disk, like the files of
// shmap/io.h. A save that is interrupted at any moment, by a kill, a full disk or a loss of power,
// leaves only a draft, which a later save removes; earlier checkpoints stay intact.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shmap/io.h"
#include "shmap/tree.h"

namespace shmap {

struct CheckpointOptions {
  int keep = 1;  // how many checkpoints the folder has at most after the save, the new one included
  // As in FileOptions. In an asynchronous save it is called on the thread that writes.
  std::function<void(std::int64_t bytes, std::int64_t total)> progress = {};
};

namespace detail {
void save_checkpoint(const std::string& dir, FlatTree tree, CheckpointOptions options,
                     SourceLine source);
std::vector<Array> load_checkpoint(const std::string& path, const FlatTree& like,
                                   const FileOptions& options, SourceLine source);

// The state of a checkpoint that a thread of its own is writing.
struct PendingCheckpointImpl;
}  // namespace detail

class PendingCheckpoint {
 public:
  PendingCheckpoint() noexcept;  // stands for no checkpoint: done() is true
  explicit PendingCheckpoint(std::unique_ptr<detail::PendingCheckpointImpl> impl);
  PendingCheckpoint(PendingCheckpoint&&) noexcept;
  PendingCheckpoint& operator=(PendingCheckpoint&&) noexcept;  // waits for the old checkpoint first
  // Waits until the checkpoint is written. An error that wait() has not thrown becomes a warning.
  ~PendingCheckpoint();
  bool done() const;  // true when the checkpoint is written, or has failed; does not block
  // Blocks until the checkpoint is written. Throws the error that occurred, the first time only.
  void wait();

 private:
  std::unique_ptr<detail::PendingCheckpointImpl> impl_;
};

namespace detail {
PendingCheckpoint save_checkpoint_async(const std::string& dir, FlatTree tree,
                                        CheckpointOptions options, SourceLine source);
}

// Creates the folder and its parents where they are missing. Blocks until the checkpoint would
// survive a loss of power. TypeError for traced values and for keys; ValueError for `keep` below 1;
// Error where the operating system refuses. An error leaves earlier checkpoints as they were. Saves
// into one folder are written in the order of the calls: this call waits for asynchronous saves
// that were started before it.
//
// Where an array is spread over several processes, this is a collective of these processes, which
// must see the same folder. Each process writes its own blocks. The first process also writes the
// arrays that each process has for itself, and gives the checkpoint its name when all processes
// have written and synced their parts. Where an exception is thrown in one process, the others
// throw an Error that names that process; where a process dies, the others throw CollectiveError.
template <Tree T>
void save_checkpoint(const std::string& dir, const T& tree, CheckpointOptions options = {},
                     SourceLine source = SourceLine::current()) {
  detail::FlatTree flat;
  detail::flatten(tree, flat, flat.node);
  detail::save_checkpoint(dir, std::move(flat), std::move(options), source);
}

// Saves while the program goes on. The checkpoint holds the arrays with their values at the time of
// this call; later computations do not change them. (A donated array that is being saved is not
// overwritten: until the checkpoint is written, an operation that would reuse the array's memory
// takes new memory.) Errors that can be found at once are thrown by this call; wait() throws only
// errors of writing. Several saves may be in flight: within one folder each is written after those
// started before it, whether these succeeded or failed.
template <Tree T>
[[nodiscard]] PendingCheckpoint save_checkpoint_async(const std::string& dir, const T& tree,
                                                      CheckpointOptions options = {},
                                                      SourceLine source = SourceLine::current()) {
  detail::FlatTree flat;
  detail::flatten(tree, flat, flat.node);
  return detail::save_checkpoint_async(dir, std::move(flat), std::move(options), source);
}

// Loads the newest checkpoint of a folder, or the checkpoint file of that path, as a tree like
// `like`: with its structure and static members, and each array with the shape, dtype and sharding
// of the array in `like`; an abstract array (shmap/eval_shape.h) comes onto the default device. A
// process reads only the blocks that it needs. ValueError where the checkpoint has another
// structure, shape or dtype (the message names the leaf and both types), where there is no
// checkpoint, and where the checkpoint is damaged (the message names the file, what is wrong, and
// the checkpoint before it, which can be loaded by its own path).
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
