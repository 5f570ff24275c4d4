// The dtype of a literal that a printed program does not name. Printing and reading agree on it:
// what it is not is printed as 2.0:f64[].
#pragma once
#include <span>
#include <string_view>

#include "shmap/shaped_array.h"

namespace shmap {

// Of a literal that prints as `text`: that of the first operand beside it, or else of the first
// result, which such a text may be a value of; else f32, i32 or bool. A text with a point, an
// exponent, inf or nan is a float; True and False are bools; others are integers, or bf16.
DType implied_dtype(std::string_view text, std::span<const ShapedArray> beside,
                    std::span<const ShapedArray> results);

}  // namespace shmap
