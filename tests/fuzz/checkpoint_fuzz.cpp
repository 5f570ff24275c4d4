// The index of checkpoints: any bytes give a ValueError, or leaves that are in the file, one after
// another, and an index that reads back the same when it is written.
#include <algorithm>
#include <string>
#include <string_view>

#include "core/io/checkpoint_format.h"
#include "shmap/error.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

namespace {
std::string with_size(const io::CheckpointIndex& index) {
  const std::string head = io::make_checkpoint_head(index);
  std::size_t length = 0;
  for (std::size_t k = 16; k-- > 8;) length = length << 8 | static_cast<unsigned char>(head[k]);
  return head.substr(16, length) + '\xff' + std::to_string(index.bytes);
}
io::CheckpointLeaf leaf(const char* path, DType dtype, Shape shape, Shape grid, std::size_t crcs) {
  io::CheckpointLeaf l;
  l.path = path;
  l.dtype = dtype;
  l.shape = std::move(shape);
  l.grid = std::move(grid);
  l.crcs.assign(crcs, 0x0123abcd);
  return l;
}
}  // namespace

// An index, a byte 0xff and the size of the file in digits.
std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto add = [&](std::vector<io::CheckpointLeaf> leaves, std::int64_t chunk) {
    io::CheckpointIndex index;
    index.chunk = chunk;
    index.leaves = std::move(leaves);
    io::place_leaves(index, "seed");
    all.push_back(with_size(index));
  };
  add({}, 4096);
  add({leaf("", DType::f32, {}, {}, 1)}, 1 << 20);
  add({leaf("['w']", DType::bf16, {8, 6}, {4, 2}, 8), leaf("[1]", DType::i64, {0, 3}, {1, 1}, 0)},
      4096);
  add({leaf("a\n\"", DType::u8, {10000}, {2}, 4)}, 4096);
  return all;
}

std::vector<std::string> dictionary() {
  return {"{",
          "}",
          "[",
          "]",
          ",",
          ":",
          "\"",
          "\\",
          " ",
          "0",
          "1",
          "4096",
          "1048576",
          "\"chunk\"",
          "\"leaves\"",
          "\"path\"",
          "\"dtype\"",
          "\"shape\"",
          "\"grid\"",
          "\"crc\"",
          "\"f32\"",
          "\"key<fry>\"",
          "\"bool\"",
          "[1]",
          "[]",
          "0123abcd",
          "9223372036854775807",
          "4611686018427387904",
          "\xff",
          "\xff"
          "64",
          "\xff"
          "128",
          R"({"path":"","dtype":"u8","shape":[],"grid":[],"crc":"00000000"},)"};
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.rfind('\xff'), size);
  std::uint64_t file_size = 0;
  for (std::size_t i = end + 1; i < size; ++i)
    file_size = file_size * 10 + static_cast<unsigned char>(input[i] - '0') % 10;
  file_size &= INT64_MAX;
  try {
    io::CheckpointIndex index = io::parse_checkpoint_index(
        input.substr(0, end), static_cast<std::int64_t>(file_size), "fuzz");
    std::int64_t at = index.data;
    for (const io::CheckpointLeaf& leaf : index.leaves) {
      fuzz::require(leaf.offset >= at && leaf.offset % 64 == 0, "leaves follow one another");
      at = leaf.offset + checked_bytes(leaf.shape, itemsize(leaf.dtype));
      fuzz::require(at <= static_cast<std::int64_t>(file_size), "a leaf lies in the file");
      fuzz::require(
          leaf.block_bytes() * leaf.blocks() == at - leaf.offset || leaf.shape.num_elements() == 0,
          "blocks take up a leaf");
      const std::int64_t chunks = index.chunks_of(leaf);
      fuzz::require(
          chunks == 0 || static_cast<std::int64_t>(leaf.crcs.size()) == chunks * leaf.blocks(),
          "each chunk has a checksum");
    }
    // An escape may be spelled in several ways, and the same index be shorter then.
    io::place_leaves(index, "fuzz");
    const std::string head = io::make_checkpoint_head(index);
    std::size_t length = 0;
    for (std::size_t k = 16; k-- > 8;) length = length << 8 | static_cast<unsigned char>(head[k]);
    const io::CheckpointIndex again =
        io::parse_checkpoint_index(std::string_view(head).substr(16, length), index.bytes, "fuzz");
    fuzz::require(again.leaves.size() == index.leaves.size(), "an index reads back the same");
    for (std::size_t i = 0; i < index.leaves.size(); ++i) {
      const io::CheckpointLeaf &a = index.leaves[i], &b = again.leaves[i];
      fuzz::require(a.path == b.path && a.dtype == b.dtype && a.shape == b.shape &&
                        a.grid == b.grid && a.crcs == b.crcs && a.offset == b.offset,
                    "a leaf reads back the same");
    }
  } catch (const ValueError& e) {
    fuzz::require_one_line(e.what());
  }
  return 0;
}
