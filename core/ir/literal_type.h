// The dtype of a literal where a printed program does not write it. The printer and the parser use
// the same rule: a literal with another dtype prints it, as 2.0:f64[].
#pragma once
#include <span>
#include <string_view>

#include "shmap/shaped_array.h"

namespace shmap {

// The dtype that is implied for a literal printed as `text`: the dtype of the first operand in
// `beside` that the text can be a value of; otherwise of the first such result; otherwise f32, i32
// or bool. A text with a point, an exponent, inf or nan is a float; True and False are bools; other
// texts are integers, or bf16.
DType implied_dtype(std::string_view text, std::span<const ShapedArray> beside,
                    std::span<const ShapedArray> results);

}  // namespace shmap
