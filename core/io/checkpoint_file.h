// Reads a checkpoint file: boxes of its leaves, checked against the checksums.
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
  // ValueError where the file is not a checkpoint or is damaged, Error where the operating system
  // refuses.
  explicit CheckpointFile(std::string path);

  const CheckpointIndex& index() const { return index_; }
  const std::string& name() const { return file_.name(); }

  // A chunk that is needed as a whole, and its destination.
  struct WholeChunk {
    const CheckpointLeaf* leaf;
    std::int64_t block, chunk;
    std::byte* dst;
  };
  // Reads the elements of `box` of that leaf into `dst`, row-major. Reads the chunks that contain
  // these elements, whole chunks on up to 4 threads where there are many; takes 1 MiB of memory for
  // chunks needed in part, and kCheckpointPiece per thread. Where `later` is not null, chunks that
  // are needed as a whole are not read but appended to it, and `dst` is incomplete until
  // read_chunks has read them; read_chunks shares the chunks of many boxes among its threads.
  // ValueError, which names the leaf, where a chunk's checksum is wrong; `dst` may then be partly
  // written.
  void read_box(const CheckpointLeaf& leaf, std::span<const Slice> box, std::byte* dst,
                std::vector<WholeChunk>* later = nullptr) const;
  void read_chunks(std::span<const WholeChunk> chunks) const;

 private:
  // `staging`: kCheckpointPiece bytes, or null to read directly because dst is used again soon.
  void read_chunk(const CheckpointLeaf& leaf, std::int64_t block, std::int64_t chunk,
                  std::byte* dst, std::byte* staging) const;
  std::int64_t chunk_bytes(const CheckpointLeaf& leaf, std::int64_t chunk) const;

  InputFile file_;
  CheckpointIndex index_;
};

}  // namespace shmap::io
