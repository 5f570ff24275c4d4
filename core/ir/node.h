// What an Array handle points to: a value's type and where it lives.
//
// literal   a host scalar, not yet on any device
// stored    blocks in device memory: concrete (global view, with a Sharding) or, inside a shard_map
// body, one device's
//           block for each local device (with the mesh, and the trace it belongs to)
// tracer    a value of a program that is being traced: a variable of it
// dual      a value and its tangent (JVP)
// batched   many values as one, along a dim of it (batching)
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/device/buffer.h"
#include "core/ir/var.h"
#include "shmap/array.h"

namespace shmap {

class Sharding;
namespace detail {
class MeshImpl;
}

enum class NodeKind : std::uint8_t { literal, stored, tracer, dual, batched };

struct Node : detail::NodeBase {
  Node(NodeKind k, const ShapedArray& t) : type(t), kind(k) {}
  ShapedArray type;
  NodeKind kind;
  // The trace that the value belongs to, by its number (never reused); 0 for concrete values and
  // literals.
  std::uint64_t trace = 0;
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

// One of many values: those along dim `dim` of `values`; its type has not that dim.
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
