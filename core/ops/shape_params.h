// The shape primitives, under lax's names, with their parameters and helpers that bind them.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

extern Primitive
    broadcast_in_dim_p;  // dims[d]: where dim d of the operand goes; it has the extent there, or 1
extern Primitive reshape_p;      // row-major; a view
extern Primitive transpose_p;    // dim d of the result is dim permutation[d] of the operand
extern Primitive rev_p;          // the order of elements reversed along some dims
extern Primitive concatenate_p;  // any number of operands, joined along one dim
extern Primitive pad_p;          // operand, padding value: lax.pad
extern Primitive iota_p;         // 0, 1, 2 … along one dim

struct BroadcastParams : ParamsOf<BroadcastParams> {
  Shape shape;
  Dims dims;
  void visit(ParamVisitor& v) const override {
    v.value("broadcast_dimensions", dims);
    v.value("shape", shape);
  }
};
struct ReshapeParams : ParamsOf<ReshapeParams> {
  Shape new_sizes;
  void visit(ParamVisitor& v) const override { v.value("new_sizes", new_sizes); }
};
struct TransposeParams : ParamsOf<TransposeParams> {
  Dims permutation;
  void visit(ParamVisitor& v) const override { v.value("permutation", permutation); }
};
struct RevParams : ParamsOf<RevParams> {
  Dims dimensions;
  void visit(ParamVisitor& v) const override { v.value("dimensions", dimensions); }
};
struct ConcatenateParams : ParamsOf<ConcatenateParams> {
  std::int64_t dimension = 0;
  void visit(ParamVisitor& v) const override { v.value("dimension", dimension); }
};
// For each dim: how many items to add before, after (negative: to remove) and between neighbours.
struct PadParams : ParamsOf<PadParams> {
  IntList low, high, interior;
  void visit(ParamVisitor& v) const override {
    v.value("high", high);
    v.value("interior", interior);
    v.value("low", low);
  }
};
struct IotaParams : ParamsOf<IotaParams> {
  DType dtype = DType::i32;
  Shape shape;
  std::int64_t dimension = 0;
  void visit(ParamVisitor& v) const override {
    v.value("dimension", dimension);
    v.value("dtype", dtype);
    v.value("shape", shape);
  }
};

// Whether the dims are 0, 1, 2 …
bool is_identity(const Dims& dims);
// Bind the primitives on arrays, or return x itself where nothing would change. The caller has
// checked shapes and dims; otherwise the primitive throws.
Array bind_reshape(Array x, const Shape& shape, SourceLine source);
Array bind_transpose(Array x, const Dims& permutation, SourceLine source);
Array bind_broadcast(Array x, const Shape& shape, const Dims& dims, SourceLine source);
// Broadcasts to exactly this shape by NumPy's rules. ValueError naming `what` where x does not
// broadcast. A host scalar is moved to a device, for every shape.
Array broadcast_exactly(Array x, const Shape& shape, const char* what, SourceLine source);
Array bind_concatenate(std::span<Array> arrays, int dim, SourceLine source);
Array bind_iota(DType dtype, const Shape& shape, int dim, SourceLine source);
// A host scalar of that dtype, not weak.
Array scalar_of(DType dtype, double value, SourceLine source);

// The sharding rule of an operation that keeps the order of dims: each dim of result 0 is a factor,
// shared by every operand of that rank. Dims in the mask `blocked` are not split. Operands of rank
// 0 are replicated.
FactorRule same_dims_rule(Types in, Types out, std::uint32_t blocked,
                          FactorRule::Localize localize = nullptr);

// rethrows the current exception
[[noreturn]] void rethrow_at(const char* what, SourceLine source);
// Runs `f`, and adds the caller's line to its ValueErrors, TypeErrors and OutOfMemory errors, and
// the name `what` to the latter.
template <class F>
auto at_source(const char* what, SourceLine source, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error&) {
    rethrow_at(what, source);
  }
}
template <class F>
auto at_source(SourceLine source, F f) -> decltype(f()) {
  return at_source("", source, f);
}

}  // namespace shmap
