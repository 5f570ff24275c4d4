// Rows and elements at computed indices, and their gradients, which add at computed indices.
#include "bench/wide/wide.h"

namespace shmap::bench {
namespace {

// The gradient of a table from which rows were taken.
Array table_gradient(const Array& table, const Array& ids, const Array& bar) {
  return grad([&](Array t) { return sum(take(t, ids, 0) * bar); })(table);
}

}  // namespace

void add_gathers(WideRows& rows) {
  rows.jit("embedding", "f32[50000,64] i32[8192]<50000",
           [](Array table, Array ids) { return take(table, ids, 0); })
      .bytes(2.0 * 8192 * 64 * 4);
  rows.jit("embedding_bf16", "bf16[32000,512] i32[4096]<32000",
           [](Array table, Array ids) { return take(table, ids, 0); })
      .bytes(2.0 * 4096 * 512 * 2);
  rows.jit("embedding_short_rows", "f32[100000,8] i32[100000]<100000",
           [](Array table, Array ids) { return take(table, ids, 0); })
      .bytes(2.0 * 100000 * 8 * 4);
  rows.jit("embedding_batch", "f32[10000,100] i32[32,77]<10000",
           [](Array table, Array ids) { return take(table, ids, 0); })
      .bytes(2.0 * 32 * 77 * 100 * 4);
  rows.eager("eager_embedding", "f32[5000,64] i32[256]<5000",
             [](Array table, Array ids) { return take(table, ids, 0); })
      .bytes(2.0 * 256 * 64 * 4);
  rows.jit("embedding_grad", "f32[50000,64] i32[8192]<50000 f32[8192,64]", table_gradient)
      .bytes((50000.0 + 8192) * 64 * 4);
  rows.jit("embedding_grad_bf16", "bf16[8000,256] i32[4096]<8000 bf16[4096,256]", table_gradient)
      .bytes((8000.0 + 4096) * 256 * 2);
  rows.jit("embedding_mean", "f32[20000,64] i32[1024,16]<20000",
           [](Array table, Array ids) { return mean(take(table, ids, 0), 1); })
      .bytes((1024.0 * 16 + 1024) * 64 * 4);
  rows.jit("take_elements", "f32[1000000] i32[1000000]<1000000",
           [](Array x, Array ids) { return x[ids]; });
  rows.jit("take_elements_grad", "f32[1000000] i32[300000]<1000000 f32[300000]", table_gradient)
      .bytes((1000000.0 + 2 * 300000) * 4);  // of the table no value is read
  rows.jit("take_columns", "f32[1000,2000] i32[500]<2000",
           [](Array x, Array ids) { return take(x, ids, 1); })
      .bytes(2.0 * 1000 * 500 * 4);
  rows.jit("histogram", "i32[500000]<1000 f32[500000]", [](Array ids, Array weights) {
    return grad([&](Array bins) { return sum(take(bins, ids, 0) * weights); })(zeros({1000}));
  });
  rows.jit("one_hot_product", "i32[2048]<500 f32[500,256]",
           [](Array ids, Array w) { return matmul(one_hot(ids, 500), w); })
      .flops(2.0 * 2048 * 500 * 256);
  rows.jit("dynamic_slice_row", "f32[1000,1000] i32[1]<900",
           [](Array x, Array at) {
             return dynamic_slice(x, {at[0], 0}, {100, 1000});
           })
      .bytes(2.0 * 100 * 1000 * 4);
  rows.jit("dynamic_update", "f32[1000,1000] f32[10,1000] i32[1]<900",
           [](Array x, Array update, Array at) {
             return dynamic_update_slice(x, update, {at[0], 0});
           });
  rows.jit("pick_by_label", "f32[4096,1000] i32[4096]<1000",
           [](Array x, Array labels) {
             return vmap([](Array row, Array label) { return row[label]; })(x, labels);
           })
      .bytes(2.0 * 4096 * 64);  // bytes of whole cache lines, the least that is read
  rows.jit("masked_by_label", "f32[4096,1000] i32[4096]<1000", [](Array x, Array labels) {
    return sum(where(reshape(labels, {4096, 1}) == arange(1000, i32), x, 0.f), 1);
  });
}

}  // namespace shmap::bench
