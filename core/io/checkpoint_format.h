// The head of a checkpoint file. The bytes are not trusted: the result is a list of leaves that is
// consistent with the file's size, or a ValueError that says what is wrong.
//
// A file is the magic "shmapck1", the length of the index (8 bytes, little endian), the index, its
// CRC-32C (4 bytes), zeros up to a multiple of 64, and the leaves. The index is JSON:
//   {"chunk":1048576,"leaves":[{"path":"[0]['w']","dtype":"f32","shape":[8,4],"grid":[4,1],
//    "crc":"0123abcd…"}, …]}
// Leaves follow one another, each at a multiple of 64 bytes. A leaf is divided evenly into a grid
// of blocks. Blocks follow one another in row-major order, and their elements are row-major. A
// block is a sequence of chunks, of which the last may be shorter; "crc" has the CRC-32C of each
// chunk in 8 hexadecimal digits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::io {

inline constexpr std::string_view kCheckpointMagic = "shmapck1";
inline constexpr std::int64_t kCheckpointAlignment = 64;
// Longer indices, and more leaves, are ValueErrors, so that a file takes no more memory than its
// size and 16 MiB.
inline constexpr std::int64_t kCheckpointMaxIndex = std::int64_t{16} << 20;
inline constexpr std::size_t kCheckpointMaxLeaves = 16384;
// The bytes that are copied and checksummed at a time; they fit into the processor's L2 cache.
inline constexpr std::int64_t kCheckpointPiece = std::int64_t{128} << 10;

struct CheckpointLeaf {
  std::string path;
  DType dtype = DType::f32;
  Shape shape, grid;
  std::vector<std::uint32_t> crcs;  // of the chunks of all blocks, in order
  std::int64_t offset = 0;          // in the file

  std::int64_t blocks() const;
  Shape block_shape() const;
  std::int64_t block_bytes() const;
};

struct CheckpointIndex {
  std::int64_t chunk = std::int64_t{1} << 20;
  std::vector<CheckpointLeaf> leaves;
  std::int64_t data = 0;   // the offset of the first leaf
  std::int64_t bytes = 0;  // of the whole file

  std::int64_t chunks_of(const CheckpointLeaf& leaf) const;  // of one block
};

// Parses the JSON text of an index. `name` begins messages.
CheckpointIndex parse_checkpoint_index(std::string_view index, std::int64_t file_size,
                                       std::string_view name);
// Sets the leaves' offsets, `data` and `bytes`. Every leaf must have its number of crcs, with any
// values.
void place_leaves(CheckpointIndex& index, const std::string& name);
// The bytes before the first leaf, padding included. Their number does not depend on the values of
// the CRCs.
std::string make_checkpoint_head(const CheckpointIndex& index);

}  // namespace shmap::io
