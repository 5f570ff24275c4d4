// Random numbers of threefry2x32. The key is an argument, given as its two words.
#include "bench/wide/wide.h"

namespace shmap::bench {

void add_random(WideRows& rows) {
  constexpr std::int64_t n = 1 << 24;
  rows.jit("random_bits_16m", "u32[2]<1000000",
           [](Array words) { return random::bits(extend::random_wrap(words), {n}); });
  rows.jit("random_normal_16m", "u32[2]<1000000",
           [](Array words) { return random::normal(extend::random_wrap(words), {n}); });
  rows.jit("dropout_4m", "u32[2]<1000000 f32[2048,2048]", [](Array words, Array x) {
    const Array keep = random::bernoulli(extend::random_wrap(words), 0.9f, {2048, 2048});
    return where(keep, x / 0.9f, 0.f);
  });
}

}  // namespace shmap::bench
