// Attention problems for tests of its kernels: random operands in host memory.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "cuda/kernels/attention/attention.h"
#include "tests/cuda/kernels/device_memory.h"
#include "tests/cuda/kernels/sample_items.h"

namespace shmap::cuda::testing {

// Floats as the items of a float dtype, and back.
inline Bytes items_from(DType dtype, const std::vector<float>& values) {
  Bytes bytes(values.size() * static_cast<std::size_t>(itemsize(dtype)));
  with_type(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T item = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &item, sizeof(T));
    }
  });
  return bytes;
}
inline std::vector<float> floats_from(DType dtype, const Bytes& bytes) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(itemsize(dtype)));
  with_type(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T item;
      std::memcpy(static_cast<void*>(&item), bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = static_cast<float>(item);
    }
  });
  return values;
}
inline std::vector<float> rounded(DType dtype, const std::vector<float>& values) {
  return floats_from(dtype, items_from(dtype, values));
}
inline std::vector<float> random_floats(std::int64_t n, float most, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i)
    values.push_back(most * (static_cast<float>(random() % 2001) / 1000.0f - 1.0f));
  return values;
}

// True if the tests are run for cuDNN's kernels. A row that a bias of infinities hides completely
// is 0 there, not NaN; programs therefore use them only without a bias unless they ask for them.
inline bool of_cudnn() {
  const char* kernel = std::getenv("SHMAP_ATTENTION_KERNEL");
  return kernel != nullptr && std::strcmp(kernel, "cudnn") == 0;
}

// The computation and its operands in host memory. The extents and options of `a` are set first;
// fill() then makes the operands.
struct AttentionProblem {
  Attention a;
  bool rows_before_inner = false;  // [outer, rows, inner, depth] in memory
  std::int64_t offset = 0;         // of all operands' first items from an aligned address
  std::int64_t gap = 0;            // items between rows
  float most = 1.0f;               // largest magnitude of the items of q and k
  float scores = 10.0f;            // magnitude of the scores, as rounded in f32
  bool shares_keys = true;         // among blocks of threads, where they would be
  std::vector<float> q, k, v, bias;
  std::vector<std::uint8_t> mask;
  std::int64_t out_items = 0;

  AttentionProblem(DType dtype, std::int64_t q_rows, std::int64_t k_rows, std::int64_t depth) {
    a.dtype = a.out_dtype = dtype;
    a.outer = 2;
    a.inner = 2;
    a.q_rows = q_rows;
    a.k_rows = k_rows;
    a.depth = a.v_depth = depth;
    a.scale = 1.0f / std::sqrt(static_cast<float>(depth));
  }

  AttentionProblem& fill() {
    q = make(a.q, a.q_rows, a.depth, a.shared, most, 1);
    k = make(a.k, a.k_rows, a.depth, 1, most, 2);
    v = make(a.v, a.k_rows, a.v_depth, 1, 1.0f, 3);
    AttentionOperand out;
    out_items = lay_out(out, a.q_rows, a.v_depth, a.shared);
    a.out_outer = out.outer;
    a.out_inner = out.inner;
    a.out_member = out.member;
    a.out_row = out.row;
    a.sums_member = 2 * a.q_rows;
    a.sums_inner = a.sums_member * a.shared;
    a.sums_outer = a.sums_inner * a.inner;
    return *this;
  }
  // Elements for each of those extents that are true; the others are broadcast.
  AttentionProblem& with_bias(bool outer, bool inner, bool row, bool column, float limit = 2.0f) {
    bias =
        rounded(a.bias_dtype, random_floats(stretch(a.bias, outer, inner, row, column), limit, 4));
    return *this;
  }
  AttentionProblem& with_mask(bool outer, bool inner, bool row, bool column) {
    std::mt19937 random(5);
    mask.resize(static_cast<std::size_t>(stretch(a.mask, outer, inner, row, column)));
    for (std::uint8_t& item : mask) item = random() % 3 != 0;
    return *this;
  }

  // A head of q.
  struct Head {
    std::int64_t outer, inner, member;
  };
  std::vector<Head> heads() const {
    std::vector<Head> all;
    for (std::int64_t o = 0; o < a.outer; ++o)
      for (std::int64_t i = 0; i < a.inner; ++i)
        for (std::int64_t m = 0; m < a.shared; ++m) all.push_back({o, i, m});
    return all;
  }
  template <class Operand>
  std::int64_t at(const Operand& x, const Head& h, std::int64_t r) const {
    return h.outer * x.outer + h.inner * x.inner + h.member * x.member + r * x.row;
  }
  // Row r of the result.
  std::int64_t out_at(const Head& h, std::int64_t r) const {
    return h.outer * a.out_outer + h.inner * a.out_inner + h.member * a.out_member + r * a.out_row;
  }

  // The finished score, in double, and whether it is masked.
  struct Score {
    double value;
    bool masked;
  };
  Score score(const Head& h, std::int64_t r, std::int64_t c) const {
    const auto get = [](const auto& values, std::int64_t i) {
      return static_cast<double>(values[static_cast<std::size_t>(i)]);
    };
    double value = 0;
    for (std::int64_t d = 0; d < a.depth; ++d)
      value += get(q, at(a.q, h, r) + d) * get(k, at(a.k, h, c) + d);
    value *= static_cast<double>(a.scale);
    if (!bias.empty()) value += get(bias, at(a.bias, h, r) + c * a.bias.column);
    const bool is_masked =
        (!mask.empty() && get(mask, at(a.mask, h, r) + c * a.mask.column) == 0) ||
        (a.causal && c - r > a.causal_offset);
    return {is_masked ? static_cast<double>(a.masked) : value, is_masked};
  }

 private:
  std::int64_t lay_out(AttentionOperand& x, std::int64_t rows, std::int64_t depth,
                       std::int64_t members) const {
    const std::int64_t row = depth + gap;
    x.row = rows_before_inner ? a.inner * members * row : row;
    x.member = members == 1 ? 0 : rows_before_inner ? row : rows * row;
    x.inner = (rows_before_inner ? row : rows * row) * members;
    x.outer = a.inner * members * rows * row;
    return a.outer * x.outer;
  }
  std::vector<float> make(AttentionOperand& x, std::int64_t rows, std::int64_t depth,
                          std::int64_t members, float limit, unsigned seed) const {
    return rounded(a.dtype, random_floats(lay_out(x, rows, depth, members), limit, seed));
  }
  std::int64_t stretch(ScoreOperand& x, bool outer, bool inner, bool row, bool column) const {
    std::int64_t items = 1;
    const auto add = [&](bool there, std::int64_t& stride, std::int64_t extent) {
      stride = there ? items : 0;
      if (there) items *= extent;
    };
    add(column, x.column, a.k_rows);
    add(row, x.row, a.q_rows);
    add(inner && a.shared > 1, x.member, a.shared);
    add(inner, x.inner, a.inner);
    add(outer, x.outer, a.outer);
    return items;
  }
};

}  // namespace shmap::cuda::testing
