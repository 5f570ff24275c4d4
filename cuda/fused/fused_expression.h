// The operations of fused programs as C++ expressions over cuda/kernels/embedded/scalar.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/ir/primitive.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

// The C++ types of a stored element, and of an element in arithmetic: "Bf16", "float".
const char* storage_type(DType dtype);
const char* compute_type(DType dtype);

// An expression for the element whose bytes are the first bytes of `bits`, written by its bits.
std::string literal_expression(DType dtype, std::uint64_t bits);

// The expression of a map, of the result's storage type; `operands` are expressions of their
// storage types. TypeError where fused programs do not take the primitive.
std::string map_expression(const Primitive& primitive, const Params& params,
                           const std::vector<std::string>& operands, DType operand, DType result);

// The expression of a draw: random bits of type `result` at a flat index, an integer expression.
std::string draw_expression(const Params& params, const std::vector<std::string>& operands,
                            const std::string& element, DType result);

// `x` widened to its arithmetic type; an arithmetic value rounded to its storage type.
std::string widened(DType dtype, const std::string& x);
std::string narrowed(DType dtype, const std::string& x);

// The functor of a reduction, and the result of reducing no elements, as an expression of the
// storage type. TypeError where the primitive is no reduction.
const char* reduction_functor(const Primitive& primitive);
std::string reduction_of_nothing(const Primitive& primitive, DType dtype);

}  // namespace shmap::cuda
