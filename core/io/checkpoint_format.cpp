#include "core/io/checkpoint_format.h"

#include <algorithm>

#include "core/base/crc.h"
#include "core/base/dtype_table.h"
#include "core/base/round_up.h"
#include "core/io/json_reader.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {

Shape read_shape(JsonReader& json, const char* what) {
  Shape shape;
  json.expect('[', what);
  for (bool first = true; json.next(first, ']');) {
    if (shape.rank() == kMaxRank)
      json.fail("a shape of more than " + std::to_string(kMaxRank) + " dims");
    shape.push_back(json.integer("an extent"));
  }
  return shape;
}

void read_crcs(JsonReader& json, std::vector<std::uint32_t>& crcs) {
  const std::string_view text = json.string("the checksums in quotes");
  if (text.size() % 8 != 0) json.fail("checksums of " + std::to_string(text.size()) + " digits");
  crcs.reserve(text.size() / 8);
  for (std::size_t i = 0; i < text.size(); i += 8) {
    std::uint32_t crc = 0;
    for (char d : text.substr(i, 8)) {
      const bool digit = d >= '0' && d <= '9', letter = d >= 'a' && d <= 'f';
      if (!digit && !letter) json.fail("a checksum is " + quoted_bytes(text.substr(i, 8)));
      crc = crc << 4 | static_cast<std::uint32_t>(digit ? d - '0' : d - 'a' + 10);
    }
    crcs.push_back(crc);
  }
}

// Checks that a leaf's description is consistent: its bytes fit into 63 bits, and its grid divides
// its shape.
std::int64_t checked_leaf_bytes(const JsonReader& json, const CheckpointLeaf& leaf) {
  const std::string which = "leaf " + quoted_bytes(leaf.path);
  if (leaf.grid.size() != leaf.shape.size())
    json.fail(which + " has shape " + to_string(leaf.shape) + " and grid " + to_string(leaf.grid));
  std::int64_t bytes = itemsize(leaf.dtype), blocks = 1;
  bool overflow = false;
  for (std::size_t d = 0; d < leaf.shape.size(); ++d) {
    const std::int64_t extent = leaf.shape[d], cuts = leaf.grid[d];
    if (cuts < 1 || extent % cuts != 0) {
      json.fail(which + ": dim " + std::to_string(d) + " of extent " + std::to_string(extent) +
                " in " + std::to_string(cuts) + " parts");
    }
    overflow = overflow || __builtin_mul_overflow(blocks, cuts, &blocks) ||
               (extent != 0 && __builtin_mul_overflow(bytes, extent, &bytes));
  }
  if (overflow) json.fail(which + " has more than 2^63 bytes");
  return std::find(leaf.shape.begin(), leaf.shape.end(), 0) == leaf.shape.end() ? bytes : 0;
}

CheckpointLeaf read_leaf(JsonReader& json) {
  CheckpointLeaf leaf;
  json.expect('{', "an object of 'path', 'dtype', 'shape', 'grid' and 'crc'");
  constexpr std::string_view kKeys[] = {"path", "dtype", "shape", "grid", "crc"};
  std::size_t given = 0;
  for (bool first = true; json.next(first, '}'); ++given) {
    // Keys are accepted only in the order in which they are written, so that none can be missing or
    // repeated.
    const std::string_view key = json.string("a key in quotes");
    if (given == 5 || key != kKeys[given]) json.fail("key " + quoted_bytes(key) + " is not wanted");
    json.expect(':', "':' after a key");
    if (given == 0) {
      leaf.path = json.text_of("a path in quotes");
    } else if (given == 1) {
      const std::string_view name = json.string("a dtype in quotes");
      const auto* found =
          std::find_if(std::begin(detail::dtype_rows), std::end(detail::dtype_rows),
                       [&](DType t) { return short_name(t) == name && t != DType::prng_key; });
      if (found == std::end(detail::dtype_rows)) json.fail("dtype " + quoted_bytes(name));
      leaf.dtype = *found;
    } else if (given == 2) {
      leaf.shape = read_shape(json, "a list of extents");
    } else if (given == 3) {
      leaf.grid = read_shape(json, "a list of parts");
    } else {
      read_crcs(json, leaf.crcs);
    }
  }
  if (given != 5) json.fail("a leaf without key '" + std::string(kKeys[given]) + "'");
  return leaf;
}

}  // namespace

std::int64_t CheckpointLeaf::blocks() const {
  std::int64_t n = 1;
  for (std::int64_t cuts : grid) n *= cuts;
  return n;
}
Shape CheckpointLeaf::block_shape() const {
  Shape block;
  for (std::size_t d = 0; d < shape.size(); ++d) block.push_back(shape[d] / grid[d]);
  return block;
}
std::int64_t CheckpointLeaf::block_bytes() const {
  return checked_bytes(block_shape(), itemsize(dtype));
}
std::int64_t CheckpointIndex::chunks_of(const CheckpointLeaf& leaf) const {
  const std::int64_t bytes = leaf.block_bytes();
  return bytes / chunk + (bytes % chunk != 0);
}

CheckpointIndex parse_checkpoint_index(std::string_view text, std::int64_t file_size,
                                       std::string_view name) {
  JsonReader json(text, name);
  if (!is_utf8(text)) json.fail("it is no UTF-8");
  CheckpointIndex index;
  json.expect('{', "an object of 'chunk' and 'leaves'");
  const auto key = [&](std::string_view wanted) {
    const std::string_view given = json.string("a key in quotes");
    if (given != wanted) json.fail("key " + quoted_bytes(given) + " is not wanted");
    json.expect(':', "':' after a key");
  };
  key("chunk");
  index.chunk = json.integer("the bytes of a chunk");
  if (index.chunk < 4096 || index.chunk > (std::int64_t{1} << 20))
    json.fail("chunks of " + std::to_string(index.chunk) + " bytes: 4096 to 1048576 are wanted");
  json.expect(',', "',' before 'leaves'");
  key("leaves");
  json.expect('[', "a list of leaves");
  const std::size_t head = kCheckpointMagic.size() + 8 + text.size() + 4;
  std::int64_t at = round_up(static_cast<std::int64_t>(head), kCheckpointAlignment);
  index.data = at;
  constexpr std::size_t kShortest =
      sizeof R"({"path":"","dtype":"u8","shape":[],"grid":[],"crc":""})";
  index.leaves.reserve(std::min(text.size() / kShortest, kCheckpointMaxLeaves));
  for (bool first = true; json.next(first, ']');) {
    if (index.leaves.size() == kCheckpointMaxLeaves)
      json.fail("it has more than " + std::to_string(kCheckpointMaxLeaves) + " leaves");
    CheckpointLeaf leaf = read_leaf(json);
    const std::int64_t bytes = checked_leaf_bytes(json, leaf);
    leaf.offset = at;
    if (bytes > file_size || at > file_size - bytes) {
      json.fail("leaf " + quoted_bytes(leaf.path) + " ends at byte " + std::to_string(at) + " + " +
                std::to_string(bytes) + " of a file of " + std::to_string(file_size));
    }
    const std::int64_t block = bytes == 0 ? 0 : bytes / leaf.blocks();
    const std::int64_t chunks =
        bytes == 0 ? 0 : leaf.blocks() * (block / index.chunk + (block % index.chunk != 0));
    if (static_cast<std::int64_t>(leaf.crcs.size()) != chunks) {
      json.fail("leaf " + quoted_bytes(leaf.path) + " has " + std::to_string(leaf.crcs.size()) +
                " checksums, and " + std::to_string(chunks) + " are wanted");
    }
    at = round_up(at + bytes, kCheckpointAlignment);
    index.leaves.push_back(std::move(leaf));
  }
  json.expect('}', "'}' at the end");
  json.expect_end();
  index.bytes = at;
  if (at != file_size) {
    json.fail("its leaves end at byte " + std::to_string(at) + ", and the file has " +
              std::to_string(file_size));
  }
  return index;
}

namespace {

std::string index_text(const CheckpointIndex& index) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "{\"chunk\":" + std::to_string(index.chunk) + ",\"leaves\":[";
  const auto list = [&](const Shape& shape) {
    text += '[';
    for (std::size_t d = 0; d < shape.size(); ++d)
      text += (d ? "," : "") + std::to_string(shape[d]);
    text += ']';
  };
  bool first = true;
  for (const CheckpointLeaf& leaf : index.leaves) {
    if (!first) text += ',';
    first = false;
    text += "{\"path\":" + json_string(leaf.path) + ",\"dtype\":\"" + short_name(leaf.dtype) +
            "\",\"shape\":";
    list(leaf.shape);
    text += ",\"grid\":";
    list(leaf.grid);
    text += ",\"crc\":\"";
    for (std::uint32_t crc : leaf.crcs)
      for (int shift = 28; shift >= 0; shift -= 4) text += kHex[crc >> shift & 15];
    text += "\"}";
  }
  return text + "]}";
}

}  // namespace

void place_leaves(CheckpointIndex& index, const std::string& name) {
  const auto length = static_cast<std::int64_t>(index_text(index).size());
  if (length > kCheckpointMaxIndex || index.leaves.size() > kCheckpointMaxLeaves) {
    throw ValueError(name + ": " + std::to_string(index.leaves.size()) +
                     " arrays and an index of " + std::to_string(length) + " bytes; at most " +
                     std::to_string(kCheckpointMaxLeaves) + " and " +
                     std::to_string(kCheckpointMaxIndex) +
                     " may be: join small arrays, or save them in several checkpoints");
  }
  index.data = round_up(static_cast<std::int64_t>(kCheckpointMagic.size()) + 8 + length + 4,
                        kCheckpointAlignment);
  std::int64_t at = index.data;
  for (CheckpointLeaf& leaf : index.leaves) {
    leaf.offset = at;
    if (__builtin_add_overflow(at, checked_bytes(leaf.shape, itemsize(leaf.dtype)), &at) ||
        at > INT64_MAX - kCheckpointAlignment)
      throw ValueError(name + ": its arrays have more than 2^63 bytes");
    at = round_up(at, kCheckpointAlignment);
  }
  index.bytes = at;
}

std::string make_checkpoint_head(const CheckpointIndex& index) {
  const std::string text = index_text(index);
  std::string head(kCheckpointMagic);
  for (int k = 0; k < 8; ++k) head += static_cast<char>(text.size() >> (8 * k) & 255);
  head += text;
  const std::uint32_t crc = crc32c(text.data(), text.size());
  for (int k = 0; k < 4; ++k) head += static_cast<char>(crc >> (8 * k) & 255);
  head.resize(static_cast<std::size_t>(index.data), '\0');
  return head;
}

}  // namespace shmap::io
