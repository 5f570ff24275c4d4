#include "core/ir/node.h"

#include <new>

#include "core/ir/enter_blocks.h"
#include "core/ir/trace.h"

namespace shmap {

namespace detail {

Array leaf_of_type(const ShapedArray& type);  // declared in shmap/tree.h

NodeBase::~NodeBase() = default;

void destroy(NodeBase* node) noexcept { delete node; }

Array literal(DType dtype, const void* value) {
  auto* node = new LiteralNode(ShapedArray(Shape(), dtype, /*weak=*/true, AxisSet()));
  __builtin_memcpy(node->value, value, static_cast<std::size_t>(itemsize(dtype)));
  return Array::of(node);
}

Array leaf_of_type(const ShapedArray& type) { return Array::first(new TypeNode(type)); }

}  // namespace detail

const char* const kArgument = "an argument";
const char* const kCaptured = "a captured array";

const Origin& origin_of(const Node& node) {
  if (node.origin.op != nullptr) return node.origin;
  if (node.kind == NodeKind::dual)
    return origin_of(*node_of(static_cast<const DualNode&>(node).primal));
  if (node.kind == NodeKind::batched)
    return origin_of(*node_of(static_cast<const BatchedNode&>(node).values));
  return node.origin;
}

std::string origin_text(const Node& node) {
  const Origin& origin = origin_of(node);
  if (origin.op == nullptr) return std::string();
  if (origin.op == kArgument) return "\n  the array is an argument of the function";
  if (origin.op == kCaptured)
    return "\n  the array was made outside of the function, which closes over it";
  return std::string("\n  the array is the result of ") + origin.op +
         (origin.source.file ? " at " + origin.source.str() : std::string());
}

void share_blocks(std::span<const Block> from, std::span<Block> to) {
  enter_blocks(to.first(from.size()), [&](std::size_t p) -> const Block& { return from[p]; });
}

StoredNode::StoredNode(const ShapedArray& t, const detail::MeshImpl* m, std::uint32_t n)
    : Node(NodeKind::stored, t), mesh(m), count(n) {
  Block* table = reinterpret_cast<Block*>(this + 1);
  for (std::uint32_t i = 0; i < n; ++i) new (table + i) Block();
}

StoredNode* StoredNode::make(const ShapedArray& type, const detail::MeshImpl* mesh,
                             std::uint32_t blocks) {
  static_assert(sizeof(StoredNode) % alignof(Block) == 0);
  void* memory = ::operator new(sizeof(StoredNode) + blocks * sizeof(Block));
  return new (memory) StoredNode(type, mesh, blocks);
}

StoredNode::~StoredNode() {
  const std::span<Block> table = blocks();
  if (table.size() == 1) {
    table[0].buffer.reset();
    return;
  }
  BufferChain given_up;
  for (std::size_t p = 0; p < table.size();) {
    Buffer* const buffer = table[p].buffer.detach();
    std::int32_t entries = 1;
    for (; ++p < table.size() && table[p].buffer.get() == buffer; ++entries)
      table[p].buffer.detach();
    if (buffer != nullptr) given_up.give_up(buffer, entries);
  }
}

void throw_empty(const char* what, SourceLine source) {
  throw ValueError(
      std::string(what) +
      " was given an empty Array: it was never assigned, or it was moved from, which donates its "
      "buffer. Assign it first, or pass a copy instead of std::move(x)." +
      at_line(source));
}

}  // namespace shmap
