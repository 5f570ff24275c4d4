#include "core/cpu/kernels/move/pad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/padded_extent.h"

namespace shmap::cpu {
namespace {

// Small boxes, and wide ones, whose runs are copied into a border that is filled around them.
TEST(Pad, RandomPaddingsMatchReference) {
  std::mt19937_64 rng(1);
  std::int64_t compared = 0;
  for (int round = 0; round < 900; ++round) {
    const bool wide = round >= 600;
    Pad p;
    constexpr int sizes[] = {1, 2, 4, 8, 16};
    p.itemsize = sizes[rng() % std::size(sizes)];
    p.rank = static_cast<int>(rng() % 4);
    std::int64_t out[kMaxRank], in_items = 1, out_items = 1;
    for (int d = 0; d < p.rank; ++d) {
      p.extent[d] = static_cast<std::int64_t>(wide && d > 0 ? 20 + rng() % 60 : rng() % 7);
      const bool none = wide && rng() % 3 == 0;
      p.low[d] = none ? 0 : static_cast<std::int64_t>(rng() % 9) - 4;
      const std::int64_t high = none ? 0 : static_cast<std::int64_t>(rng() % 9) - 4;
      p.interior[d] = rng() % (wide ? 9 : 2) == 0 ? static_cast<std::int64_t>(rng() % 3) : 0;
      out[d] = p.padded[d] = testing::padded_extent(p.extent[d], p.low[d], high, p.interior[d]);
      in_items *= p.extent[d];
      out_items *= out[d];
    }
    std::vector<std::uint8_t> src(static_cast<std::size_t>(in_items * p.itemsize) + 1);
    std::vector<std::uint8_t> value(static_cast<std::size_t>(p.itemsize));
    for (auto& b : src) b = static_cast<std::uint8_t>(rng());
    for (auto& b : value) b = static_cast<std::uint8_t>(rng());
    std::vector<std::uint8_t> want(static_cast<std::size_t>(out_items * p.itemsize) + 3, 9);
    auto got = want;
    compared += out_items;
    for (std::int64_t i = 0; i < out_items; ++i) {
      std::int64_t rest = i, from = 0, step = 1;
      bool inside = true;
      for (int d = p.rank - 1; d >= 0; --d) {
        const std::int64_t at = rest % out[d] - p.low[d];
        rest /= out[d];
        inside &=
            at >= 0 && at % (p.interior[d] + 1) == 0 && at / (p.interior[d] + 1) < p.extent[d];
        if (inside) from += at / (p.interior[d] + 1) * step;
        step *= p.extent[d];
      }
      std::memcpy(want.data() + i * p.itemsize,
                  inside ? src.data() + from * p.itemsize : value.data(),
                  static_cast<std::size_t>(p.itemsize));
    }
    p.src = src.data();
    p.value = value.data();
    for (int parts : {0, 1, 2, 5}) {
      std::fill(got.begin(), got.end(), std::uint8_t{9});
      p.dst = got.data();
      if (parts == 0) pad(p);
      for (int part = 0; part < parts; ++part) pad_part(p, part, parts);
      ASSERT_TRUE(got == want) << "round " << round << " in " << parts << " parts";
    }
  }
  EXPECT_GT(compared, 10'000);
}

}  // namespace
}  // namespace shmap::cpu
