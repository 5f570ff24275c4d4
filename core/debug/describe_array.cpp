#include "core/debug/describe_array.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/array/print_array.h"
#include "core/array/sharding.h"
#include "core/debug/staged_print.h"

namespace shmap {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

// The reason why the values cannot be shown now; "" if they can.
std::string obstacle(const StoredNode& node) {
  if (!node.mesh->backend().host_addressable())
    return "the values are in a GPU's memory: print them from the program";
  if (node.type.nbytes() > kMostBytes)
    return "not shown: " + std::to_string(node.type.nbytes()) + " bytes";
  for (const Block& block : node.blocks()) {
    if (!block.buffer) return "the values were given away (donated)";
    const Event& written = block.buffer->def();
    if (!written.done()) return "not computed yet";
    if (written.failed()) return "the operation that computes it failed";
  }
  return "";
}

// Copies a block to its position in the whole array; both are row-major.
void place_block(const StoredNode& node, std::uint32_t position, const Shape& block,
                 std::byte* whole) {
  const int rank = node.type.rank();
  const std::size_t width = static_cast<std::size_t>(itemsize(node.type.dtype()));
  std::vector<std::int64_t> start(static_cast<std::size_t>(rank) + 1);
  node.sharding->block_start(position, block, start.data());
  const auto* from = static_cast<const std::byte*>(node.blocks()[position].data());
  const std::int64_t row = rank == 0 ? 1 : block[rank - 1];
  const std::int64_t rows = row == 0 ? 0 : block.num_elements() / row;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t rest = r, offset = rank == 0 ? 0 : start[static_cast<std::size_t>(rank) - 1];
    std::int64_t stride = rank == 0 ? 1 : node.type.dims()[rank - 1];
    for (int d = rank - 2; d >= 0; --d) {
      offset += (start[static_cast<std::size_t>(d)] + rest % block[d]) * stride;
      rest /= block[d];
      stride *= node.type.dims()[d];
    }
    std::memcpy(whole + static_cast<std::size_t>(offset) * width,
                from + static_cast<std::size_t>(r * row) * width,
                static_cast<std::size_t>(row) * width);
  }
}

std::string describe_blocks(const StoredNode& node) {
  std::string s = to_string(node.type) + ", a block on each of " + describe_mesh(*node.mesh);
  std::string why = obstacle(node);
  if (why.empty() && node.sharding && !node.sharding->is_replicated())
    why = "split over automatic axes as " + to_string(node.sharding->spec());
  if (!why.empty()) return s + "\n(" + why + ")";
  for (std::uint32_t p = 0; p < node.count; ++p) {
    s += "\nOn " + node.mesh->local(p).device.str() + " at mesh coordinates " +
         debug::detail::position_text(*node.mesh, p) + ":\n" +
         detail::format_array(node.blocks()[p].data(), node.type.dtype(), node.type.dims());
  }
  return s;
}

std::string describe_stored(const StoredNode& node) {
  if (node.trace != 0 || node.sharding == nullptr) return describe_blocks(node);
  std::string s = to_string(node.type) + ", " + to_string(node.sharding->spec()) + " on " +
                  describe_mesh(*node.mesh);
  std::string why = obstacle(node);
  if (why.empty() && !node.mesh->fully_addressable() && !node.sharding->is_replicated())
    why = "other processes have parts of it";
  if (why.empty() && node.count == 0) why = "this process has no part of it";
  if (!why.empty()) return s + "\n(" + why + ")";
  const Shape block = node.sharding->block_shape(node.type.dims(), "the array");
  std::vector<std::byte> whole(static_cast<std::size_t>(node.type.nbytes()));
  for (std::uint32_t p = 0; p < node.count; ++p) place_block(node, p, block, whole.data());
  return s + "\n" + detail::format_array(whole.data(), node.type.dtype(), node.type.dims());
}

}  // namespace

std::string describe_array(const Node* node) {
  if (node == nullptr) return "<empty Array>";
  switch (node->kind) {
    case NodeKind::literal:
      return to_string(node->type) + ", a host scalar\n" +
             detail::format_array(static_cast<const LiteralNode*>(node)->value, node->type.dtype(),
                                  node->type.dims());
    case NodeKind::tracer:
      return to_string(node->type) + ", traced: it has no values yet";
    case NodeKind::dual:
      return "under differentiation, of " +
             describe_array(node_of(static_cast<const DualNode*>(node)->primal));
    case NodeKind::batched:
      return to_string(node->type) + ", an example of a batch along dim " +
             std::to_string(static_cast<const BatchedNode*>(node)->dim) + " of " +
             describe_array(node_of(static_cast<const BatchedNode*>(node)->values));
    case NodeKind::stored:
      return describe_stored(*static_cast<const StoredNode*>(node));
  }
  return "<an Array of unknown kind>";
}

}  // namespace shmap

namespace {

// What `describe` makes, in memory that lives until this thread's next call.
const char* text_for_debugger(auto describe, const char* otherwise) noexcept {
  thread_local std::string text;
  try {
    text = describe();
    return text.c_str();
  } catch (...) {  // cannot throw into the debugger; most likely memory is exhausted
    return otherwise;
  }
}

}  // namespace

const char* shmap_describe_array(const shmap::detail::NodeBase* node) noexcept {
  return text_for_debugger(
      [&] { return shmap::describe_array(static_cast<const shmap::Node*>(node)); },
      "<the library could not describe this Array>");
}

const char* shmap_describe_mesh(const shmap::detail::MeshImpl* mesh) noexcept {
  return text_for_debugger([&] { return shmap::describe_mesh(*mesh); },
                           "<the library could not describe this Mesh>");
}
