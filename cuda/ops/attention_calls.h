// Splits a call of attention or of one of its derivatives into calls of kernels, which have three
// batch dims: two that k has, and one for the heads of q that share one head of k. Batch dims that
// are nested in all operands are merged; each index of the remaining dims is a call of its own.
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

  // An operand with dims [batch…, row, column]; add all operands before the functions below are
  // called.
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
  // Call after the last operand is added.
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
  // The number of calls; the first `own_calls` belong to different heads of k, and so on.
  std::int64_t calls() const { return count(apart_); }
  std::int64_t own_calls() const { return own_calls_; }

  // The operand of a kernel for one call.
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
    std::vector<std::int64_t> strides;  // for each operand
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
  // Removes and returns the innermost level, or a level of one item if there is none.
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
