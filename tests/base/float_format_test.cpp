#include "core/base/float_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/base/element_type.h"

namespace shmap {
namespace {

TEST(FloatFormat, IsThatOfTheElementTypes) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    SCOPED_TRACE(short_name(dtype));
    with_float(dtype, [&]<class T>() {
      const auto bits = [](double value) {
        T element;
        if constexpr (sizeof(T) == 8)
          element = value;
        else
          element = T(static_cast<float>(value));
        std::uint64_t bits = 0;
        __builtin_memcpy(&bits, &element, sizeof(T));
        return bits;
      };
      EXPECT_EQ(one_bits(dtype), bits(1));
      EXPECT_EQ(infinity_bits(dtype), bits(std::numeric_limits<double>::infinity()));
      // The float below 1 has the bits below those of 1; the smallest normal one has an exponent of
      // 1 and no mantissa.
      EXPECT_EQ(bits(1 - step_below_one(dtype)), one_bits(dtype) - 1);
      EXPECT_EQ(bits(smallest_normal(dtype)), std::uint64_t{1} << mantissa_bits(dtype));
    });
  }
  EXPECT_EQ(smallest_normal(f32), std::numeric_limits<float>::min());
  EXPECT_EQ(smallest_normal(f64), std::numeric_limits<double>::min());
  EXPECT_EQ(smallest_normal(f16), 0x1p-14);
  EXPECT_EQ(step_below_one(f16), 0x1p-11);
  EXPECT_EQ(step_below_one(bf16), 0x1p-8);
}

TEST(FloatFormat, HalvesAreTheFloatsOfTwoBytes) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    EXPECT_EQ(is_half(dtype), is_floating(dtype) && itemsize(dtype) == 2) << short_name(dtype);
  }
}

}  // namespace
}  // namespace shmap
