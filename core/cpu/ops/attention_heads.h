// Splits a call of attention or of one of its derivatives into heads. Operands are read in place.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/cpu/kernels/attention/attention.h"
#include "core/ops/attention.h"
#include "core/runtime/kernel.h"

namespace shmap {

// The offsets of an operand's items, one for each [batch…] of the scores.
class HeadItems {
 public:
  HeadItems(const ShapedArray& t, const Dims& dims, const Shape& scores)
      : itemsize_(itemsize(t.dtype())) {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      std::int64_t step = 0;
      if (dims[i] >= 0) {
        step = 1;
        for (int d = t.rank(); --d > dims[i];) step *= t.dims()[static_cast<std::size_t>(d)];
      }
      if (i + 2 < dims.size()) {
        extents_.push_back(scores[i]);
        strides_.push_back(step);
      } else {
        (i + 2 == dims.size() ? row_ : column_) = step;
      }
    }
  }
  std::int64_t row() const { return row_; }
  std::int64_t column() const { return column_; }
  std::int64_t offset(std::int64_t item) const {  // in bytes
    std::int64_t at = 0;
    for (std::size_t i = extents_.size(); i-- > 0; item /= extents_[i])
      at += item % extents_[i] * strides_[i];
    return at * itemsize_;
  }

 private:
  std::int64_t itemsize_, row_ = 0, column_ = 0;
  IntList extents_, strides_;
};

inline const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }
inline std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }

class AttentionHeads {
 public:
  explicit AttentionHeads(const KernelCall& call)
      : call_(call),
        p_(params_as<AttentionParams>(call.params)),
        extents_(attention_extents(call.in_types, p_)),
        q_(call.in_types[0], p_.q_dims, extents_.scores),
        k_(call.in_types[1], p_.k_dims, extents_.scores),
        v_(call.in_types[2], p_.v_dims, extents_.scores) {
    const Shape& scores = extents_.scores;
    head_.dtype = call.in_types[0].dtype();
    head_.out_dtype = p_.out_dtype;
    head_.q_rows = scores[scores.size() - 2];
    head_.k_rows = scores[scores.size() - 1];
    head_.depth = extents_.depth;
    head_.v_depth = extents_.v_depth;
    head_.scale = static_cast<float>(p_.scale);
    head_.masked = static_cast<float>(p_.masked);
    head_.causal = p_.causal;
    head_.causal_offset = p_.causal_offset;
    count_ = 1;
    for (std::size_t i = 0; i + 2 < scores.size(); ++i) count_ *= scores[i];
    if (attention_bias(p_) >= 0) {
      bias_.emplace(type(attention_bias(p_)), p_.bias_dims, scores);
      head_.bias_dtype = type(attention_bias(p_)).dtype();
    }
    if (attention_mask(p_) >= 0) mask_.emplace(type(attention_mask(p_)), p_.mask_dims, scores);
  }

  std::int64_t count() const { return count_; }
  bool is_empty() const { return extents_.scores.num_elements() == 0; }
  const AttentionExtents& extents() const { return extents_; }
  std::int64_t q_rows() const { return head_.q_rows; }
  std::int64_t k_rows() const { return head_.k_rows; }
  HeadItems items(const ShapedArray& t, const Dims& dims) const {
    return HeadItems(t, dims, extents_.scores);
  }

  cpu::AttentionHead head(std::int64_t item) const {
    cpu::AttentionHead h = head_;
    h.q = {bytes(call_.in[0]) + q_.offset(item), q_.row()};
    h.k = {bytes(call_.in[1]) + k_.offset(item), k_.row()};
    h.v = {bytes(call_.in[2]) + v_.offset(item), v_.row()};
    if (bias_) h.bias = scores(*bias_, attention_bias(p_), item);
    if (mask_) h.mask = scores(*mask_, attention_mask(p_), item);
    return h;
  }

 private:
  const ShapedArray& type(int i) const { return call_.in_types[static_cast<std::size_t>(i)]; }
  cpu::AttentionScoreOperand scores(const HeadItems& x, int i, std::int64_t item) const {
    return {bytes(call_.in[static_cast<std::size_t>(i)]) + x.offset(item), x.row(), x.column()};
  }

  const KernelCall& call_;
  const AttentionParams& p_;
  AttentionExtents extents_;
  HeadItems q_, k_, v_;
  std::optional<HeadItems> bias_, mask_;
  cpu::AttentionHead head_;
  std::int64_t count_ = 1;
};

inline std::int64_t blocks_of(std::int64_t rows, std::int64_t block) {
  return (rows + block - 1) / block;
}

// There are more parts than workers, since with a causal mask rows differ in work.
inline constexpr int kAttentionPartsPerWorker = 4;

// The number of parts for a call whose items are blocks of rows of the scores.
inline int attention_parts(const KernelCall& call, int workers) {
  cpu::prepare_attention();
  const AttentionHeads heads(call);
  const std::int64_t items =
      heads.count() * blocks_of(heads.q_rows(), cpu::AttentionHead().row_block);
  return static_cast<int>(
      std::clamp<std::int64_t>(items, 1, std::int64_t{workers} * kAttentionPartsPerWorker));
}

}  // namespace shmap
