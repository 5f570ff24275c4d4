// Converts floating-point numbers to decimal text: with the fewest digits that identify a value in
// its type, rounded to a number of digits, or as NumPy 2.4 prints scalars.
#pragma once
#include <cstdint>
#include <string>

#include "shmap/dtype.h"

namespace shmap::detail {

// digits[0].digits[1]… × 10^exponent, for a finite value. Zero is the one digit 0 with exponent 0.
struct Decimal {
  bool negative = false;
  int exponent = 0;
  int count = 0;
  char digits[20] = {};
};

// The fewest digits that read back as the same value of the same type. If several numbers have so
// few digits, the nearest one.
Decimal shortest_decimal(double value);
Decimal shortest_decimal(float value);
Decimal shortest_decimal(float16 value);

// `value` correctly rounded (ties to even) to `count` significant digits, 1 … 17.
Decimal rounded_decimal(double value, int count);

// "-12.5", "3.", "0.001": every digit of d and no other, with a point always. Integer digits that d
// does not have are zeros.
std::string positional(const Decimal& d);
// "1.25e+10": as many digits after the point as d has, padded with zeros to `fraction_digits`, and
// at least `exponent_digits` digits of exponent.
std::string scientific(const Decimal& d, int fraction_digits, int exponent_digits);

// One element as NumPy prints a scalar (str): "1.5", "1e-05", "3", "True", "nan". bfloat16 prints
// six significant digits without trailing zeros ("0.100098", "1"), as ml_dtypes, and therefore JAX,
// does. prng_key is not a number: TypeError.
std::string format_scalar(const void* element, DType dtype);

// bfloat16 alone: "0.100098".
std::string format_bfloat16(bfloat16 value);

}  // namespace shmap::detail
