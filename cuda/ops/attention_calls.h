// A call of attention or of one of its derivatives as calls of kernels, which have three batch
// dims: two that k has, and one of heads of q that share one of k. Batch dims that lie one within
// the other in all operands are one; what is left over is a call each.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ops/attention.h"

namespace shmap {

class AttentionCalls {
 public:
  // scores: extents of [batch…, row of q, row of k].
  AttentionCalls(const Shape& scores, const AttentionParams& p) {
    for (std::size_t i = 0; i + 2 < scores.size(); ++i)
      if (scores[i] != 1) (p.k_dims[i] < 0 ? shared_ : own_).push_back({scores[i], i, {}});
  }

  // An operand whose dims are [batch…, row, column], before the others are asked for.
  struct Operand {
    std::size_t number = 0;
    std::int64_t row = 0, column = 0, itemsize = 1;
  };
  Operand add(const ShapedArray& t, const Dims& dims) {
    const auto step = [&](std::size_t i) {
      std::int64_t s = dims[i] < 0 || t.dims()[static_cast<std::size_t>(dims[i])] == 1 ? 0 : 1;
      for (int d = t.rank(); --d > dims[i] && s != 0;) s *= t.dims()[static_cast<std::size_t>(d)];
      return s;
    };
    for (std::vector<Level>* levels : {&own_, &shared_})
      for (Level& level : *levels) level.strides.push_back(step(level.place));
    return {operands_++, step(dims.size() - 2), step(dims.size() - 1), itemsize(t.dtype())};
  }
  // When all are added.
  void settle() {
    merge(own_);
    merge(shared_);
    inner_ = take(own_);
    outer_ = take(own_);
    member_ = take(shared_);
    apart_ = own_;
    own_calls_ = count(own_);
    apart_.insert(apart_.begin(), shared_.begin(), shared_.end());
  }

  std::int64_t outer() const { return outer_.extent; }
  std::int64_t inner() const { return inner_.extent; }
  std::int64_t shared() const { return member_.extent; }
  // Calls, of which the first `own_calls` are of different heads of k, and so on.
  std::int64_t calls() const { return count(apart_); }
  std::int64_t own_calls() const { return own_calls_; }

  // A kernel's operand of a call.
  template <class To, class Data>
  To operand(const Operand& x, Data* data, std::int64_t call) const {
    To to;
    to.data = from(x, data, call);
    to.outer = stride(outer_, x);
    to.inner = stride(inner_, x);
    to.member = stride(member_, x);
    to.row = x.row;
    return to;
  }

 private:
  struct Level {
    std::int64_t extent = 1;
    std::size_t place = 0;
    std::vector<std::int64_t> strides;  // of each operand
  };
  static std::int64_t count(const std::vector<Level>& levels) {
    std::int64_t n = 1;
    for (const Level& level : levels) n *= level.extent;
    return n;
  }
  static void merge(std::vector<Level>& levels) {
    for (std::size_t i = levels.size(); i-- > 1;) {
      Level &level = levels[i - 1], &inside = levels[i];
      bool nested = true;
      for (std::size_t x = 0; x < level.strides.size(); ++x)
        nested = nested && level.strides[x] == inside.strides[x] * inside.extent;
      if (!nested) continue;
      level.extent *= inside.extent;
      level.strides = inside.strides;
      levels.erase(levels.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  // The innermost, or one of one item.
  static Level take(std::vector<Level>& levels) {
    if (levels.empty()) return {};
    Level last = std::move(levels.back());
    levels.pop_back();
    return last;
  }
  static std::int64_t stride(const Level& level, const Operand& x) {
    return level.strides.empty() ? 0 : level.strides[x.number];
  }
  template <class Data>
  Data* from(const Operand& x, Data* data, std::int64_t call) const {
    using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
    std::int64_t at = 0;
    for (std::size_t i = apart_.size(); i-- > 0; call /= apart_[i].extent)
      at += call % apart_[i].extent * apart_[i].strides[x.number];
    return static_cast<Byte*>(data) + at * x.itemsize;
  }

  std::size_t operands_ = 0;
  std::vector<Level> own_, shared_, apart_;
  Level outer_, inner_, member_;
  std::int64_t own_calls_ = 1;
};

}  // namespace shmap
