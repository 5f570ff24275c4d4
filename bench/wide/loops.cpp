// Scans, loops and branches, whose trips are small, and their gradients.
#include "bench/wide/wide.h"

namespace shmap::bench {
namespace {

Array rnn_loss(Array w, Array u, Array xs) {
  const auto step = [&](Array h, Array x) {
    const Array next = tanh(matmul(h, w) + matmul(x, u));
    return std::pair{next, sum(next)};
  };
  const auto [h, ys] = scan(step, zeros({16, 64}), xs);
  return mean(square(h)) + mean(ys);
}

}  // namespace

void add_loops(WideRows& rows) {
  rows.jit("scan_sums", "f32[1000,64]", [](Array xs) {
    return scan([](Array c, Array x) { return std::pair{c * 0.9f + x, c}; }, zeros({64}), xs);
  });
  rows.jit("scan_products_200", "f32[64,64]*0.2 f32[200,64,64]*0.2",
           [](Array c, Array xs) {
             return scan(
                 [](Array c, Array x) {
                   const Array next = matmul(c, x);
                   return std::pair{next, sum(next)};
                 },
                 c, xs);
           })
      .flops(200 * 2.0 * 64 * 64 * 64);
  rows.jit("rnn_500", "f32[64,64]*0.2 f32[32,64]*0.2 f32[500,16,32]", rnn_loss)
      .flops(500 * 2.0 * 16 * 96 * 64);
  rows.jit("rnn_500_grad", "f32[64,64]*0.2 f32[32,64]*0.2 f32[500,16,32]",
           [](Array w, Array u, Array xs) { return grad<0, 1>(rnn_loss)(w, u, xs); })
      .flops(500 * 2.0 * 16 * (3 * 64 + 2 * 32) * 64);  // of xs there is no cotangent
  rows.jit("fori_scalar_1000", "f32[1]", [](Array x) {
    return fori_loop(
        0, 1000, [](Array, Array c) { return c * 0.999f + 0.001f; }, x);
  });
  rows.jit("fori_matrix_100", "f32[100,100]*0.1",
           [](Array x) {
             return fori_loop(
                 0, 100, [x](Array, Array c) { return matmul(c, x) + x; }, x);
           })
      .flops(100 * 2.0 * 100 * 100 * 100);
  rows.jit("while_newton", "f32[1000]+", [](Array x) {
    const auto [n, root] =
        while_loop([&](auto carry) { return max(abs(carry.second * carry.second - x)) > 1e-5f; },
                   [&](auto carry) {
                     return std::pair{carry.first + 1, 0.5f * (carry.second + x / carry.second)};
                   },
                   std::pair{Array(0), x});
    return root;
  });
  rows.jit("cond_of_two", "f32[100000] i32[1]<2", [](Array x, Array which) {
    return cond(
        which[0] > 0, [](Array x) { return sin(x); }, [](Array x) { return x * 2.f; }, x);
  });
  rows.jit("switch_in_scan", "i32[300]<4 f32[256]", [](Array which, Array x) {
    return scan(
        [](Array c, Array k) {
          const auto up = [](Array c) { return c + 0.5f; };
          const auto down = [](Array c) { return c * 0.5f; };
          const auto turn = [](Array c) { return sin(c); };
          const auto flat = [](Array c) { return tanh(c); };
          return std::pair{switch_(k, std::tuple{up, down, turn, flat}, c), sum(c)};
        },
        x, which);
  });
  rows.jit("scan_large_xs", "f32[64,256,257]", [](Array xs) {
    return scan(
        [](Array c, Array x) {
          return std::pair{c + tanh(x), max(x)};
        },
        zeros({256, 257}), xs);
  });
  rows.jit("scan_reverse", "f32[400,128]", [](Array xs) {
    return scan(
        [](Array c, Array x) {
          const Array next = maximum(c * 0.99f, x);
          return std::pair{next, next};
        },
        zeros({128}), xs, {.reverse = true});
  });
  rows.jit("nested_scans", "f32[20,20,64]", [](Array xs) {
    const auto inner = [](Array c, Array x) { return std::pair{c * 0.9f + x, sum(c)}; };
    return scan([=](Array c, Array rows) { return scan(inner, c, rows); }, zeros({64}), xs);
  });
  rows.jit("scan_dynamic_index", "f32[512,128] i32[300]<512", [](Array table, Array ids) {
    return scan(
        [=](Array c, Array k) {
          const Array row = dynamic_index_in_dim(table, k, 0, false);
          return std::pair{c + row, sum(row)};
        },
        zeros({128}), ids);
  });
  rows.jit("power_iteration", "f32[200,200]*0.1 f32[200]", [](Array a, Array x) {
    return fori_loop(
        0, 50,
        [a](Array, Array v) {
          const Array w = matmul(a, v);
          return w / sqrt(sum(square(w)));
        },
        x);
  });
}

}  // namespace shmap::bench
