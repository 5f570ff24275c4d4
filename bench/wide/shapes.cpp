// Work that only moves values.
#include "bench/wide/wide.h"

namespace shmap::bench {

void add_shapes(WideRows& rows) {
  rows.jit("transpose_odd", "f32[2001,3003]", [](Array x) { return transpose(x); });
  rows.jit("transpose_bf16", "bf16[2048,2048]", [](Array x) { return transpose(x); });
  rows.jit("transpose_heads", "f32[8,128,16,64]", [](Array x) {
    return transpose(x, {0, 2, 1, 3});
  });
  rows.jit("transpose_channels", "u8[32,100,100,3]", [](Array x) {
    return transpose(x, {0, 3, 1, 2});
  });
  rows.jit("concatenate_columns", "f32[1000,500] f32[1000,501]", [](Array x, Array y) {
    return concatenate({x, y}, 1);
  });
  rows.jit("stack_last", "f32[1000000] f32[1000000]", [](Array x, Array y) {
    return stack({x, y}, 1);
  });
  rows.jit("pad_odd", "f32[1001,1003]", [](Array x) { return pad(x, {{1, 2}, {3, 4}}, 0.5f); });
  rows.jit("roll_rows", "f32[1000,1000]", [](Array x) { return roll(x, 7, 1); });
  rows.jit("flip_columns", "f32[2000,1001]", [](Array x) { return flip(x, 1); });
  rows.jit("every_second", "f32[2000,2000]", [](Array x) {
    return x[{range(), range(0, 2000, 2)}];
  });
  rows.jit("slice_window", "f32[2000,2000]",
           [](Array x) {
             return x[{range(100, 1900), range(101, 1899)}];
           })
      .bytes(2.0 * 1800 * 1798 * 4);
  rows.jit("tile_odd", "f32[101,103]", [](Array x) { return tile(x, {10, 10}); });
  rows.jit("repeat_columns", "f32[1000,333]", [](Array x) { return repeat(x, 3, 1); });
  rows.jit("triangle", "f32[1500,1500]",
           [](Array x) {
             const Array n = arange(1500, i32);
             return where(reshape(n, {1500, 1}) >= n, x, 0.f);
           })
      .bytes(1.5 * 1500 * 1500 * 4);  // half of x need not be read
  rows.eager("eager_slice", "f32[1000,1000]",
             [](Array x) {
               return x[{range(10, 20), range(10, 20)}] * 2.f;
             })
      .bytes(800);
  rows.jit("stencil_5_points", "f32[1002,1002]", [](Array x) {
    const auto part = [&](int row, int column) {
      return x[{range(row, row + 1000), range(column, column + 1000)}];
    };
    return 0.2f * (part(1, 1) + part(0, 1) + part(2, 1) + part(1, 0) + part(1, 2));
  });
}

}  // namespace shmap::bench
