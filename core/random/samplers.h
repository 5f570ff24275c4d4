// Samplers that other samplers use, for keys that have been checked.
#pragma once
#include <string>

#include "core/random/bit_source.h"

namespace shmap::draw {

// TypeError, which names the sampler, where dtype is not a float (or not an integer) dtype.
void check_float(const BitSource& from, DType dtype);
void check_integer(const BitSource& from, DType dtype);
// x in that dtype, of rank 0 or with the rank of `shape`. ValueError where it does not broadcast to
// `shape`.
Array parameter(const BitSource& from, Operand x, const char* name, const Shape& shape,
                DType dtype);

// Bits as floats in [0, 1), with JAX's number of random mantissa bits. `bits` has the width
// random_width(dtype).
int random_width(DType dtype);
Array unit_floats(const Array& bits, DType dtype, SourceLine source);
// lo + floats * (hi - lo), but not less than lo.
Array scaled(const Array& floats, const Array& lo, const Array& hi, SourceLine source);

Array uniform(const BitSource& from, const Shape& shape, DType dtype);
Array uniform(const BitSource& from, const Shape& shape, DType dtype, double lo, double hi);
Array normal(const BitSource& from, const Shape& shape, DType dtype);
// Converts uniform floats in [0, 1) to normal samples.
Array normal_of(const Array& floats, SourceLine source);
Array exponential(const BitSource& from, const Shape& shape, DType dtype);
Array gumbel(const BitSource& from, const Shape& shape, DType dtype);
Array rademacher(const BitSource& from, const Shape& shape, DType dtype);
Array randint(const BitSource& from, const Shape& shape, Array lo, Array hi, DType dtype);
// `a` has the shape of the result.
Array gamma(const BitSource& from, const Array& a, bool as_log);

}  // namespace shmap::draw
