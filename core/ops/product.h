// Products of matrices merged with the operations on their results: a bias, an activation, an
// addition, and writing into a slice of a larger array. For backends with kernels for these; the
// pass fuse_products creates them (core/compiler/fusion/fuse_products.h). The result is rounded
// to its dtype once, at the end.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/activation.h"
#include "core/ops/dot.h"

namespace shmap {

// Operands: lhs, rhs and, if params.bias, a bias.
extern Primitive product_p;
// Operands: lhs, rhs, the target and, if params.bias, a bias. The result is the target with the
// product added to it, or written into a slice of it. It may take the target's memory.
extern Primitive product_into_p;

// A slice of an array at an offset that the host knows. offsets: the offset of its first element,
// in elements, for each local device of the mesh, or one for all; empty: the slice is the whole
// array.
struct ProductSlice {
  Shape sizes;
  std::vector<std::int64_t> offsets;

  bool is_whole() const { return offsets.empty(); }
  std::int64_t offset(std::uint32_t position) const {
    return is_whole() ? 0 : offsets.size() == 1 ? offsets[0] : offsets[position];
  }
};

struct ProductParams : ParamsOf<ProductParams> {
  DotParams dot;      // the product of the two slices
  bool bias = false;  // a number for each column (the free dims of rhs), added first
  Activation activation = Activation::none;
  bool adds = false;  // adds the target's contents, before the activation
  // the slices of the operands that are multiplied; they are contiguous
  ProductSlice lhs, rhs;
  ProductSlice place;  // the slice of the target, or of an array of shape `whole`
  // for product_p: the result's shape; elements outside of `place` are unspecified
  std::optional<Shape> whole;

  void visit(ParamVisitor& v) const override;
};

// The types of the two factors.
std::array<ShapedArray, 2> factor_types(Types in, const ProductParams& params);

// The strides of a product in a larger array, in elements: `row` is the distance between rows,
// `item` the distance between batch items.
struct ProductStrides {
  std::int64_t row = 0, item = 0;
};
// The strides of a slice of shape `part`. False if the slice is not a batch of matrices. Its dims
// are those of a dot_general's result: `batch` batch dims, then `left` dims of lhs, then dims of
// rhs.
bool place_product(const Shape& whole, const Shape& part, int batch, int left, ProductStrides* out);
// True if a slice of shape `part` is contiguous.
bool is_contiguous_part(const Shape& whole, const Shape& part);

}  // namespace shmap
