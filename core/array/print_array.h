// Arrays as text, exactly as NumPy 2.4 prints them with its default options: at most 8 fractional
// digits, lines of 75 columns, and for arrays of more than 1000 elements only the first and last 3
// entries of every dim that has more than 6.
#pragma once
#include <string>
#include <string_view>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::detail {

// `data` holds shape.num_elements() elements in C order; only elements that are printed are read.
// Rank 0 prints as a scalar, an array without elements as "[]". `prefix` is the text that the
// caller prints before the result on its first line; it only determines the indentation of the
// following lines. bfloat16 prints as ml_dtypes and JAX print it, unaligned; key<fry> prints as in
// JAX: a line that says so, and the keys' u32 words below it. ValueError where the shape has a
// negative extent or overflows.
std::string format_array(const void* data, DType dtype, const Shape& shape,
                         std::string_view prefix = {});

}  // namespace shmap::detail
