// Work on meshes: bodies with collectives on one and two axes, and global views.
#include "bench/wide/wide.h"

namespace shmap::bench {
namespace {

constexpr const char* kLine = "i=8";
constexpr const char* kGrid = "x=4,y=2";

Array loss_of(Array w1, Array w2, Array x, Array y) {
  return mean(square(matmul(tanh(matmul(x, w1)), w2) - y));
}

}  // namespace

void add_meshes(WideRows& rows) {
  const Mesh &line = mesh_of(kLine), &grid = mesh_of(kGrid);
  rows.jit("psum_grid", "f32[512@x,512@y]",
           [grid](Array x) {
             return shard_map([](Array b) { return psum(b * b, axes("x", "y")); }, grid,
                              P("x", "y"), P())(x);
           })
      .on(kGrid);
  const auto blocked = [grid](Array a, Array b) {
    return shard_map([](Array a, Array b) { return psum(matmul(a, b), "y"); }, grid,
                     {P("x", "y"), P("y", none)}, P("x", none))(a, b);
  };
  rows.jit("block_product_grid", "f32[512@x,512@y] f32[512@y,256]", blocked)
      .on(kGrid)
      .flops(2.0 * 512 * 512 * 256);
  rows.eager("eager_block_product_grid", "f32[256@x,256@y] f32[256@y,128]", blocked)
      .on(kGrid)
      .flops(2.0 * 256 * 256 * 128);
  rows.jit("gather_product", "f32[256@i,512] f32[512,256@i]",
           [line](Array a, Array b) {
             return shard_map(
                 [](Array a, Array b) { return matmul(all_gather(a, "i", {.tiled = true}), b); },
                 line, {P("i", none), P(none, "i")}, P(none, "i"))(a, b);
           })
      .on(kLine)
      .flops(2.0 * 256 * 512 * 256);
  rows.jit("halo_stencil_50", "f32[4096@i,64]",
           [line](Array x) {
             return shard_map(
                 [](Array x) {
                   return fori_loop(
                       0, 50,
                       [](Array, Array x) {
                         const int rows = static_cast<int>(x.shape()[0]);
                         std::vector<std::pair<int, int>> up, down;
                         for (int k = 0; k < 8; ++k) {
                           up.emplace_back(k, (k + 1) % 8);
                           down.emplace_back(k, (k + 7) % 8);
                         }
                         const Array above = ppermute(x[{range(rows - 1, rows)}], "i", up);
                         const Array below = ppermute(x[{range(0, 1)}], "i", down);
                         const Array wide = concatenate({above, x, below}, 0);
                         return 0.5f * x +
                                0.25f * (wide[{range(0, rows)}] + wide[{range(2, rows + 2)}]);
                       },
                       x);
                 },
                 line, P("i"), P("i"))(x);
           })
      .on(kLine);
  rows.jit("experts_exchange", "f32[1024@i,128]",
           [line](Array x) {
             return shard_map(
                 [](Array x) {
                   const Array there = all_to_all(reshape(x, {8, 16, 128}), "i", 0, 0);
                   return reshape(all_to_all(gelu(there), "i", 0, 0), {128, 128});
                 },
                 line, P("i"), P("i"))(x);
           })
      .on(kLine);
  rows.jit("mean_gradient_step", "f32[128,256]*0.1 f32[256,64]*0.1 f32[1024@i,128] f32[1024@i,64]",
           [line](Array w1, Array w2, Array x, Array y) {
             const auto loss = shard_map([](Array w1, Array w2, Array x,
                                            Array y) { return pmean(loss_of(w1, w2, x, y), "i"); },
                                         line, {P(), P(), P("i"), P("i")}, P());
             const auto [value, g] = value_and_grad<0, 1>(loss)(w1, w2, x, y);
             return std::tuple{value, w1 - 0.1f * std::get<0>(g), w2 - 0.1f * std::get<1>(g)};
           })
      .on(kLine)
      .flops(2.0 * 1024 * 64 * 256 * 3 + 2.0 * 1024 * 128 * 256 * 2);
  rows.jit("scan_with_psum", "f32[50,64@i]",
           [line](Array xs) {
             return shard_map(
                 [](Array xs) {
                   const auto step = [](Array c, Array x) {
                     const Array next = 0.5f * c + psum(sum(x), "i");
                     return std::pair{next, next};
                   };
                   return scan(step, zeros({}), xs).second;
                 },
                 line, P(none, "i"), P())(xs);
           })
      .on(kLine);
  rows.jit("ranks_softmax", "f32[512,4096@i]",
           [line](Array x) {
             return shard_map(
                 [](Array x) {
                   const Array top = pmax(stop_gradient(max(x, 1, true)), "i");
                   const Array e = exp(x - top);
                   return e / psum(sum(e, 1, true), "i");
                 },
                 line, P(none, "i"), P(none, "i"))(x);
           })
      .on(kLine);
  rows.jit("global_product", "f32[512@x,512] f32[512,512@y]",
           [](Array a, Array b) { return matmul(a, b); })
      .on(kGrid)
      .flops(2.0 * 512 * 512 * 512);
  rows.jit("global_product_contracted", "f32[256,1024@i] f32[1024@i,256]",
           [](Array a, Array b) { return matmul(a, b); })
      .on(kLine)
      .flops(2.0 * 256 * 1024 * 256);
  rows.jit("global_normalize", "f32[2048@x,512@y]",
           [](Array x) { return (x - mean(x, 1, true)) * rsqrt(var(x, 1, true) + 1e-5f); })
      .on(kGrid);
  rows.jit("global_sum", "f32[4096@i,1024]", [](Array x) { return sum(x); }).on(kLine);
  rows.jit("global_transpose", "f32[1024@i,1024]", [](Array x) { return transpose(x) * 2.f; })
      .on(kLine);
  rows.jit("global_elementwise_odd", "f32[1016@i,999]", [](Array x) { return tanh(x) * 0.5f + x; })
      .on(kLine);
  rows.jit("global_mlp_grad", "f32[256,512@y]*0.1 f32[512@y,64]*0.1 f32[1024@x,256] f32[1024@x,64]",
           [](Array w1, Array w2, Array x, Array y) {
             return value_and_grad<0, 1>(loss_of)(w1, w2, x, y);
           })
      .on(kGrid)
      .flops(2.0 * 1024 * 64 * 512 * 3 + 2.0 * 1024 * 256 * 512 * 2);
  rows.eager("eager_global_add", "f32[1024@i,256] f32[1024@i,256]",
             [](Array x, Array y) { return x + y; })
      .on(kLine);
}

}  // namespace shmap::bench
