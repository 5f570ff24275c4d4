// The shape primitives that other families build on, and their parameters.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

extern Primitive
    broadcast_in_dim_p;  // dims[d]: where dim d of the operand goes; it has the extent there, or 1
extern Primitive reshape_p;  // row-major; a view
extern Primitive iota_p;     // 0, 1, 2 … along one dim

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

}  // namespace shmap
