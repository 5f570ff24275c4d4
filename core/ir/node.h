// What an Array handle points to: a value's type and where it lives. The kinds of nodes:
//
// literal: a host scalar, not yet on any device.
//
// stored: blocks in device memory. A concrete array has a global view and a Sharding; a value of a
// shard_map body has one block for each local device, a mesh, and the trace that it belongs to.
//
// tracer: a value of a program that is being traced: one of its variables.
//
// dual: a value and its tangent (JVP).
//
// batched: a batch of values, stacked along one dim of an array (vmap).
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

// Where a value comes from, for the text of errors: the operation that gave it, and the line of
// user code that called the operation.
struct Origin {
  const char* op =
      nullptr;  // its name, which lives for ever; kArgument; null where it is not known
  SourceLine source;
};
// As Origin::op (compared by address): an argument of the function that is traced or mapped.
extern const char* const kArgument;
// Likewise: a value that was made outside of the function, which closes over it.
extern const char* const kCaptured;

struct Node : detail::NodeBase {
  Node(NodeKind k, const ShapedArray& t) : type(t), kind(k) {}
  ShapedArray type;
  NodeKind kind;
  // The trace that the value belongs to, by its number (never reused); 0 for concrete values and
  // literals.
  std::uint64_t trace = 0;
  Origin origin;
};

struct LiteralNode final : Node {
  explicit LiteralNode(const ShapedArray& t) : Node(NodeKind::literal, t) {}
  alignas(8) std::byte value[8] = {};
};

// Where one device's block lies: contiguous row-major at an offset of a buffer.
struct Block {
  BufferRef buffer;
  std::int64_t offset = 0;
  void* data() const { return static_cast<std::byte*>(buffer->data()) + offset; }
};

// The table device -> (buffer, offset). Entries may coincide whatever the type says; only local
// devices have one, in the mesh's local order. Allocated together with the node.
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
  const Sharding* sharding = nullptr;  // of a concrete array; null inside a body
  std::uint32_t count;
  bool committed = false;  // placed by its user, or computed from what was; others follow

 private:
  StoredNode(const ShapedArray& t, const detail::MeshImpl* m, std::uint32_t n);
};

// A value of a trace that has none yet, but a variable of the jaxpr that the trace builds.
struct TracerNode final : Node {
  TracerNode(const ShapedArray& type, std::uint64_t trace_id, VarRef v)
      : Node(NodeKind::tracer, type), var(std::move(v)) {
    trace = trace_id;
  }
  VarRef var;
};

// A value under differentiation; its type is the primal's. The tangent is a value of the same type,
// but where linearize is at work: there it is a variable of the linear program.
struct DualNode final : Node {
  DualNode(std::uint64_t trace_id, Array p, Array t)
      : Node(NodeKind::dual, static_cast<const Node*>(p.node())->type),
        primal(std::move(p)),
        tangent(std::move(t)) {
    trace = trace_id;
  }
  Array primal, tangent;
};

// A batch of values, stacked along dim `dim` of `values`; the node's type is that of one of them,
// without that dim.
struct BatchedNode final : Node {
  BatchedNode(const ShapedArray& type, std::uint64_t trace_id, Array v, int d)
      : Node(NodeKind::batched, type), values(std::move(v)), dim(d) {
    trace = trace_id;
  }
  Array values;
  int dim;
};

// A type where a value is wanted: an argument of make_jaxpr (its trace is no trace's number).
struct TypeNode final : Node {
  explicit TypeNode(const ShapedArray& type) : Node(NodeKind::tracer, type) { trace = kTrace; }
  static constexpr std::uint64_t kTrace = ~std::uint64_t{0};
};

inline Node* node_of(const Array& x) { return static_cast<Node*>(x.node()); }
// The node, or a ValueError that says that the array is empty or moved from (donated) and names
// `what`.
[[noreturn]] void throw_empty(const char* what, SourceLine source);
inline Node& checked_node(const Array& x, const char* what, SourceLine source = {}) {
  Node* node = node_of(x);
  if (node == nullptr) [[unlikely]]
    throw_empty(what, source);
  return *node;
}
// Of a value under a derivative or vmap it is the origin of the value that it wraps.
const Origin& origin_of(const Node& node);
// "\n  the array is the result of gt at f.cpp:12", or "" where that is not known.
std::string origin_text(const Node& node);
// What the host reads of a value under differentiation: its primal, at the lowest level.
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
