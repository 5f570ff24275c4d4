// Node: the object that an Array handle points to, with the type and the representation of a value.
// The kinds of nodes:
//
//   literal   a host scalar, which is not on any device yet
//   stored    blocks in device memory. A concrete array has a Sharding; a value in a shard_map body
//             has a mesh and belongs to a trace. Both have one block for each local device
//   tracer    a value of a program that is being traced: one of its variables
//   dual      a value and its tangent (JVP)
//   batched   a batch of values, stacked along one dim of an array (vmap)
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/device/buffer.h"
#include "core/ir/var.h"
#include "shmap/array.h"

namespace shmap {

class Sharding;
namespace detail {
class MeshImpl;
}

enum class NodeKind : std::uint8_t { literal, stored, tracer, dual, batched };

// Where a value comes from, for error messages: the operation that computed it, and the line of
// user code that called the operation.
struct Origin {
  // The operation's name, in static memory; or kArgument, kCaptured; null where it is unknown.
  const char* op = nullptr;
  SourceLine source;
};
// The Origin::op of a value that is an argument of the function that is traced or mapped. Compared
// by address.
extern const char* const kArgument;
// The Origin::op of a closed-over value, which was made outside of the function that uses it.
// Compared by address.
extern const char* const kCaptured;

struct Node : detail::NodeBase {
  Node(NodeKind k, const ShapedArray& t) : type(t), kind(k) {}
  ShapedArray type;
  NodeKind kind;
  // The id of the trace to which the value belongs (ids are never reused); 0 for concrete values
  // and literals.
  std::uint64_t trace = 0;
  Origin origin;
};

struct LiteralNode final : Node {
  explicit LiteralNode(const ShapedArray& t) : Node(NodeKind::literal, t) {}
  alignas(8) std::byte value[8] = {};
};

// One device's block: contiguous and row-major, at an offset of a buffer.
struct Block {
  BufferRef buffer;
  std::int64_t offset = 0;
  void* data() const { return static_cast<std::byte*>(buffer->data()) + offset; }
};

// Copies the blocks of `from` to `to`, whose entries are empty; both tables then own the buffers.
void share_blocks(std::span<const Block> from, std::span<Block> to);

// A value in device memory: a table of blocks, one for each local position, in the order of the
// mesh's local devices. Entries may share a block, whatever the variance in the type. The table is
// allocated together with the node.
struct StoredNode final : Node {
  static StoredNode* make(const ShapedArray& type, const detail::MeshImpl* mesh,
                          std::uint32_t blocks);
  ~StoredNode() override;
  void operator delete(void* memory) { ::operator delete(memory); }
  std::span<Block> blocks() { return {reinterpret_cast<Block*>(this + 1), count}; }
  std::span<const Block> blocks() const {
    return {reinterpret_cast<const Block*>(this + 1), count};
  }

  const detail::MeshImpl* mesh;
  const Sharding* sharding = nullptr;  // of a concrete array; null for a value in a body
  std::uint32_t count;
  // Whether a user placed this array, or an array from which it was computed, on its devices (JAX:
  // committed). Operations move uncommitted operands to the devices of committed ones.
  bool committed = false;

 private:
  StoredNode(const ShapedArray& t, const detail::MeshImpl* m, std::uint32_t n);
};

// A traced value: a variable of the jaxpr that its trace builds.
struct TracerNode final : Node {
  TracerNode(const ShapedArray& type, std::uint64_t trace_id, VarRef v)
      : Node(NodeKind::tracer, type), var(std::move(v)) {
    trace = trace_id;
  }
  VarRef var;
};

// A value under differentiation; the node's type is the type of the primal. The tangent has the
// same type. Under linearize the tangent is a variable of the linear program.
struct DualNode final : Node {
  DualNode(std::uint64_t trace_id, Array p, Array t)
      : Node(NodeKind::dual, static_cast<const Node*>(p.node())->type),
        primal(std::move(p)),
        tangent(std::move(t)) {
    trace = trace_id;
  }
  Array primal, tangent;
};

// A batch of values, stacked along dim `dim` of `values`. The node's type is the type of one
// example, without that dim.
struct BatchedNode final : Node {
  BatchedNode(const ShapedArray& type, std::uint64_t trace_id, Array v, int d)
      : Node(NodeKind::batched, type), values(std::move(v)), dim(d) {
    trace = trace_id;
  }
  Array values;
  int dim;
};

// A type used as an argument of make_jaxpr, where no value exists (kTrace is no trace's id).
struct TypeNode final : Node {
  explicit TypeNode(const ShapedArray& type) : Node(NodeKind::tracer, type) { trace = kTrace; }
  static constexpr std::uint64_t kTrace = ~std::uint64_t{0};
};

inline Node* node_of(const Array& x) { return static_cast<Node*>(x.node()); }
// Throws the ValueError for an array without a node.
[[noreturn]] void throw_empty(const char* what, SourceLine source);
// The node of x. ValueError where the array is empty or was moved from (donated); `what` names it.
inline Node& checked_node(const Array& x, const char* what, SourceLine source = {}) {
  Node* node = node_of(x);
  if (node == nullptr) [[unlikely]]
    throw_empty(what, source);
  return *node;
}
// The origin of the value; for a dual or a batched node, of the value that it wraps.
const Origin& origin_of(const Node& node);
// "\n  the array is the result of gt at f.cpp:12", or "" where the origin is not known.
std::string origin_text(const Node& node);
// The innermost primal of a value under differentiation, which the host reads in place of the
// value; x itself for other values.
inline const Array& primal_of(const Array& x) {
  const Array* p = &x;
  while (p->node() && node_of(*p)->kind == NodeKind::dual)
    p = &static_cast<const DualNode*>(node_of(*p))->primal;
  return *p;
}
inline StoredNode* stored_of(const Array& x) {  // null where it is not stored
  Node* n = node_of(x);
  return n && n->kind == NodeKind::stored ? static_cast<StoredNode*>(n) : nullptr;
}

}  // namespace shmap
