// Products of matrices with what comes after them, as one call: a bias, an activation, a term that
// is added, and the place of a larger array that the result goes to. For backends whose products
// can do that; jit makes them of programs (core/transforms/fusion/fuse_products.h). What is
// computed is rounded to the result's dtype once, at the end.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/ops/dot.h"

namespace shmap {

// Operands: lhs, rhs and, where `bias` says so, a bias.
extern Primitive product_p;
// Operands: lhs, rhs, the target and, where `bias` says so, a bias. The result is the target with
// the product in its place: added to it, or in a slice of it. It may take the target's memory.
extern Primitive product_into_p;

enum class Activation : std::uint8_t { none, relu, gelu };  // gelu: of its form with tanh

// A part of an array at a place that the host knows: where it begins, in elements, is one offset
// for each local device of the mesh, or one for all. None: the whole array.
struct ProductSlice {
  Shape sizes;
  std::vector<std::int64_t> offsets;

  bool is_whole() const { return offsets.empty(); }
  std::int64_t offset(std::uint32_t position) const {
    return is_whole() ? 0 : offsets.size() == 1 ? offsets[0] : offsets[position];
  }
};

struct ProductParams : ParamsOf<ProductParams> {
  DotParams dot;      // of the slices of lhs and rhs
  bool bias = false;  // a number for each column, the other dims of rhs: added before all else
  Activation activation = Activation::none;
  bool adds = false;           // to what the target, or its slice, holds; before the activation
  ProductSlice lhs, rhs;       // contiguous parts of the operands
  ProductSlice place;          // of the target, or of an array of shape `whole`
  std::optional<Shape> whole;  // the result of product has nothing but the product in its place

  void visit(ParamVisitor& v) const override;
};

// The types of what is multiplied.
std::array<ShapedArray, 2> factor_types(Types in, const ProductParams& params);

// How a product lies in a larger array: rows of n elements, `row` elements from one to the next,
// and `item` from one batch item to the next.
struct ProductPlace {
  std::int64_t row = 0, item = 0;
};
// False where a part of such extents is no batch of matrices there. The dims are those of a
// dot_general's result: `batch` of them, then `left`, then the others.
bool place_product(const Shape& whole, const Shape& part, int batch, int left, ProductPlace* out);
// Whether a part of such extents lies in one piece.
bool is_contiguous_part(const Shape& whole, const Shape& part);

}  // namespace shmap
