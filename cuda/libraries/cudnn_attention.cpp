#include "cuda/libraries/cudnn_attention.h"

#include <limits>

namespace shmap::cuda {

using cudnn::Data;
using cudnn::Pointwise;
using cudnn::Reduction;

namespace {

// The tensors that both graphs have. cuDNN recognises its kernels by the operations and their
// order: these are the ones in cuDNN's documentation of attention.
struct Scores {
  const CudnnAttention& a;
  CudnnGraph& graph;
  Extents4 full{a.batch, a.heads, a.q_rows, a.k_rows};
  Extents4 rows{a.batch, a.heads, a.q_rows, 1};

  CudnnTensor operand(std::int64_t id, std::int64_t heads, std::int64_t row_count,
                      std::int64_t depth, const HeadStrides& s) const {
    return graph.in_memory(id, a.type, {a.batch, heads, row_count, depth}, {s[0], s[1], s[2], 1});
  }
  // A tensor with its rows as columns.
  CudnnTensor transposed(std::int64_t id, std::int64_t heads, std::int64_t row_count,
                         std::int64_t depth, const HeadStrides& s) const {
    return graph.in_memory(id, a.type, {a.batch, heads, depth, row_count}, {s[0], s[1], 1, s[2]});
  }
  CudnnTensor logs() const {
    return graph.in_memory(logs_id, Data::f32, rows, packed_strides(rows));
  }

  // scale · q kᵀ + bias
  CudnnTensor scaled(CudnnTensor q, CudnnTensor k, CudnnTensor scale) const {
    const CudnnTensor products = graph.matmul(q, k, graph.between(full));
    const CudnnTensor x = graph.op(Pointwise::mul, products, scale, graph.between(full));
    if (!a.has_bias) return x;
    const CudnnTensor bias = graph.in_memory(bias_id, a.bias_type, a.bias_dims, a.bias_strides);
    return graph.op(Pointwise::add, x, bias, graph.between(full));
  }
  // -infinity where the column is beyond row + causal_offset.
  CudnnTensor masked(CudnnTensor x) const {
    if (!a.causal) return x;
    const auto index = [&](int axis) {
      return graph.pointwise(Pointwise::index, std::span(&x, 1), graph.between(full, Data::i32),
                             Data::f32, axis);
    };
    CudnnTensor row = index(2);
    const CudnnTensor column = index(3);
    if (a.causal_offset != 0) {
      const CudnnTensor offset = graph.number(static_cast<std::int32_t>(a.causal_offset));
      row = graph.pointwise(Pointwise::add, std::array{row, offset}, graph.between(full, Data::i32),
                            Data::i32, 3);
    }
    const CudnnTensor is_seen = graph.pointwise(Pointwise::greater_equal, std::array{row, column},
                                                graph.between(full, Data::boolean), Data::boolean);
    const CudnnTensor hidden = graph.number(-std::numeric_limits<float>::infinity());
    return graph.pointwise(Pointwise::select, std::array{x, hidden, is_seen}, graph.between(full));
  }
};

}  // namespace

CudnnGraph cudnn_attention(const CudnnAttention& a, bool wants_logs) {
  CudnnGraph graph;
  const Scores s{a, graph};
  const CudnnTensor q = s.operand(q_id, a.heads, a.q_rows, a.depth, a.q);
  const CudnnTensor k = s.transposed(k_id, a.k_heads, a.k_rows, a.depth, a.k);
  const CudnnTensor v = s.operand(v_id, a.k_heads, a.k_rows, a.v_depth, a.v);
  const CudnnTensor out = s.operand(out_id, a.heads, a.q_rows, a.v_depth, a.out);
  const CudnnTensor x = s.masked(s.scaled(q, k, graph.number(a.scale)));
  const CudnnTensor most = graph.reduce(Reduction::max, x, graph.between(s.rows));
  const CudnnTensor below = graph.op(Pointwise::sub, x, most, graph.between(s.full));
  const CudnnTensor exps = graph.op(Pointwise::exp, below, graph.between(s.full));
  const CudnnTensor sum = graph.reduce(Reduction::add, exps, graph.between(s.rows));
  // These operations belong to the form, whether or not their result is wanted.
  const CudnnTensor log = graph.op(Pointwise::log, sum, graph.between(s.rows));
  graph.op(Pointwise::add, most, log, wants_logs ? s.logs() : graph.between(s.rows));
  const CudnnTensor weights = graph.op(Pointwise::div, exps, sum, graph.between(s.full, a.type));
  graph.matmul(weights, v, out);
  return graph;
}

CudnnGraph cudnn_attention_grad(const CudnnAttention& a) {
  CudnnGraph graph;
  const Scores s{a, graph};
  const CudnnTensor q = s.operand(q_id, a.heads, a.q_rows, a.depth, a.q);
  const CudnnTensor k = s.transposed(k_id, a.k_heads, a.k_rows, a.depth, a.k);
  const CudnnTensor v = s.transposed(v_id, a.k_heads, a.k_rows, a.v_depth, a.v);
  const CudnnTensor out = s.operand(out_id, a.heads, a.q_rows, a.v_depth, a.out);
  const CudnnTensor cotangent = s.operand(cotangent_id, a.heads, a.q_rows, a.v_depth, a.cotangent);
  const CudnnTensor q_bar = s.operand(q_bar_id, a.heads, a.q_rows, a.depth, a.q_bar);
  const CudnnTensor k_bar = s.operand(k_bar_id, a.k_heads, a.k_rows, a.depth, a.k_bar);
  const CudnnTensor v_bar = s.operand(v_bar_id, a.k_heads, a.k_rows, a.v_depth, a.v_bar);

  // The mean of each row's gradients of weights.
  const Extents4 out_dims{a.batch, a.heads, a.q_rows, a.v_depth};
  CudnnTensor means = graph.op(Pointwise::mul, cotangent, out, graph.between(out_dims));
  means = graph.reduce(Reduction::add, means, graph.between(s.rows));
  means = graph.op(Pointwise::mul, means, graph.number(1.0f),
                   graph.in_memory(means_id, Data::f32, s.rows, packed_strides(s.rows)));

  const CudnnTensor scale = graph.number(a.scale);
  CudnnTensor x = s.scaled(q, k, scale);
  x = graph.op(Pointwise::sub, x, s.logs(), graph.between(s.full));
  const CudnnTensor weights = graph.op(Pointwise::exp, s.masked(x), graph.between(s.full));

  // A product with the transpose of [row, column], summed over the heads that share one of k.
  const auto transposed_product = [&](CudnnTensor scores, CudnnTensor rows, std::int64_t depth,
                                      CudnnTensor into) {
    const Extents4 turned{a.batch, a.heads, a.k_rows, a.q_rows};
    const std::int64_t all = a.q_rows * a.k_rows;
    const CudnnTensor t =
        graph.reshape(scores, graph.between(turned, a.type, {a.heads * all, all, 1, a.k_rows}));
    if (a.heads == a.k_heads) return graph.matmul(t, rows, into);
    const Extents4 each{a.batch, a.heads, a.k_rows, depth};
    return graph.reduce(Reduction::add, graph.matmul(t, rows, graph.between(each, a.type)), into);
  };
  transposed_product(weights, cotangent, a.v_depth, v_bar);

  x = graph.matmul(cotangent, v, graph.between(s.full));
  x = graph.op(Pointwise::sub, x, means, graph.between(s.full));
  x = graph.op(Pointwise::mul, x, weights, graph.between(s.full));
  x = graph.op(Pointwise::mul, x, scale, graph.between(s.full));
  transposed_product(x, q, a.depth, k_bar);

  const Extents4 k_dims{a.batch, a.k_heads, a.k_rows, a.depth};
  const CudnnTensor k_rows =
      graph.reshape(k, graph.between(k_dims, a.type, {a.k[0], a.k[1], a.k[2], 1}));
  if (a.ordered) {
    graph.matmul(x, k_rows, q_bar);
  } else {
    const Extents4 q_dims{a.batch, a.heads, a.q_rows, a.depth};
    const CudnnTensor sums = graph.matmul(
        x, k_rows, graph.in_memory(q_sums_id, Data::f32, q_dims, packed_strides(q_dims)));
    graph.op(Pointwise::identity, sums, q_bar);
  }
  return graph;
}

const char* cudnn_grad_fault(const CudnnAttention& a, std::size_t version) {
  if (a.q_rows == 1 && a.k_rows == 1) return "cuDNN has no backward pass of one row and one column";
  if (version <= 91500 && a.k_rows % 128 != 0)
    return "cuDNN before 9.15.1 wants numbers of keys that are multiples of 128";
  return nullptr;
}

std::int64_t cudnn_means_bytes(const CudnnAttention& a) { return a.batch * a.heads * a.q_rows * 4; }

std::int64_t cudnn_q_sums_bytes(const CudnnAttention& a) {
  return a.ordered ? 0 : cudnn_means_bytes(a) * a.depth;
}

}  // namespace shmap::cuda
