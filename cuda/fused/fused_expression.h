// The operations of fused programs as C++ expressions over cuda/kernels/scalar.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/ir/primitive.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

// The type that an element is stored as, and that it is computed in: "Bf16", "float".
const char* storage_type(DType dtype);
const char* compute_type(DType dtype);

// The element with these bytes (the first ones of `bits`), written by its bits.
std::string literal_expression(DType dtype, std::uint64_t bits);

// A map of operands, which are expressions of their storage types, as one of the result's.
// TypeError where the primitive is none that programs are made of.
std::string map_expression(const Primitive& primitive, const Params& params,
                           const std::vector<std::string>& operands, DType operand, DType result);

// A draw: random bits of type `result` at a flat index, an expression of an integer.
std::string draw_expression(const Params& params, const std::vector<std::string>& operands,
                            const std::string& element, DType result);

// `x` widened to what it is computed in, and a computed value rounded to its storage type.
std::string widened(DType dtype, const std::string& x);
std::string narrowed(DType dtype, const std::string& x);

// The functor of a reduction, and the result of reducing nothing, as an expression of the storage
// type. TypeError where the primitive is none.
const char* reduction_functor(const Primitive& primitive);
std::string reduction_of_nothing(const Primitive& primitive, DType dtype);

}  // namespace shmap::cuda
