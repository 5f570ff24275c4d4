// The dtype of a literal whose dtype a printed program does not state. The printer and the parser
// use the same rule: the printer states only a dtype that differs from the implied one, as in
// 2.0:f64[].
#pragma once
#include <span>
#include <string_view>

#include "shmap/shaped_array.h"

namespace shmap {

// The dtype that is implied for a literal printed as `text`: the first dtype of which the text can
// be a value, among the other operands (`beside`) and then the results of the equation; if there is
// none, f32, i32 or bool. A text with a point, an exponent, inf or nan is a float; True and False
// are bools; other texts are integers, or bf16.
DType implied_dtype(std::string_view text, std::span<const ShapedArray> beside,
                    std::span<const ShapedArray> results);

}  // namespace shmap
