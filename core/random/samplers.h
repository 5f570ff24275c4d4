// Samplers that others draw by: of a key that has been checked.
#pragma once
#include <string>

#include "core/random/bit_source.h"

namespace shmap::draw {

// TypeError naming the sampler where it is no float (integer) dtype.
void check_float(const BitSource& from, DType dtype);
void check_integer(const BitSource& from, DType dtype);
// x in the dtype, of rank 0 or with the dims of `shape`. ValueError where it does not broadcast.
Array parameter(const BitSource& from, Operand x, const char* name, const Shape& shape,
                DType dtype);

// Bits as floats in [0, 1): JAX's, of the mantissa's width. bits: of the width random_width gives.
int random_width(DType dtype);
Array unit_floats(const Array& bits, DType dtype, SourceLine source);
// lo + floats * (hi - lo), at least lo.
Array scaled(const Array& floats, const Array& lo, const Array& hi, SourceLine source);

Array uniform(const BitSource& from, const Shape& shape, DType dtype);
Array uniform(const BitSource& from, const Shape& shape, DType dtype, double lo, double hi);
Array normal(const BitSource& from, const Shape& shape, DType dtype);
// Of floats in [0, 1): normals.
Array normal_of(const Array& floats, SourceLine source);
Array exponential(const BitSource& from, const Shape& shape, DType dtype);
Array gumbel(const BitSource& from, const Shape& shape, DType dtype);
Array rademacher(const BitSource& from, const Shape& shape, DType dtype);
Array randint(const BitSource& from, const Shape& shape, Array lo, Array hi, DType dtype);
// a of the shape of the result.
Array gamma(const BitSource& from, const Array& a, bool as_log);

// Of a float dtype: the smallest normal number, the steps below and above 1.
double tiny_of(DType dtype);
double step_below_one(DType dtype);

}  // namespace shmap::draw
