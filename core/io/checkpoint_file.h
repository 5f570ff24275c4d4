// A checkpoint file that is read: boxes of its leaves, held against their checksums.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/io/checkpoint_format.h"
#include "core/io/input_file.h"
#include "shmap/slice.h"

namespace shmap::io {

class CheckpointFile {
 public:
  // ValueError where it is no checkpoint or a damaged one, Error where the system refuses.
  explicit CheckpointFile(std::string path);

  const CheckpointIndex& index() const { return index_; }
  const std::string& name() const { return file_.name(); }

  // A chunk that is wanted as a whole, and where.
  struct WholeChunk {
    const CheckpointLeaf* leaf;
    std::int64_t block, chunk;
    std::byte* dst;
  };
  // The elements of `box` of that leaf to `dst`, row-major. Reads the chunks of its blocks that
  // hold some of them, on a few threads where there are many, and takes 1 MiB of memory a thread.
  // With `later`, which may be null, chunks that are wanted as a whole are entered there instead:
  // they, and so `dst`, are for read_chunks, which shares those of many boxes among its threads.
  // ValueError that names the leaf where a chunk is not what was written; `dst` may then be partly
  // written.
  void read_box(const CheckpointLeaf& leaf, std::span<const Slice> box, std::byte* dst,
                std::vector<WholeChunk>* later = nullptr) const;
  void read_chunks(std::span<const WholeChunk> chunks) const;

 private:
  // `staging`: kCheckpointPiece bytes, or null, where dst is read again soon.
  void read_chunk(const CheckpointLeaf& leaf, std::int64_t block, std::int64_t chunk,
                  std::byte* dst, std::byte* staging) const;
  std::int64_t chunk_bytes(const CheckpointLeaf& leaf, std::int64_t chunk) const;

  InputFile file_;
  CheckpointIndex index_;
};

}  // namespace shmap::io
