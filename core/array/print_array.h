// Arrays as text, to the letter as NumPy 2.4 prints them with its default options: at most 8
// fractional digits, lines of 75 columns, and beyond 1000 elements only the first and last 3 of
// every dim that has more than 6.
#pragma once
#include <string>
#include <string_view>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::detail {

// `data` holds shape.num_elements() elements in C order; it is read only where elements are shown.
// Rank 0 prints as a scalar, a size of 0 as "[]". The text of `prefix` is to stand before the
// result on its first line: it counts for nothing but the indentation of the lines that follow.
// bfloat16 prints as ml_dtypes and JAX print it, unaligned; key<fry> as JAX: its u32 words below a
// line that says so. ValueError where the shape has a negative extent or overflows.
std::string format_array(const void* data, DType dtype, const Shape& shape,
                         std::string_view prefix = {});

}  // namespace shmap::detail
