// Sorting along one dim, and the k largest elements.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// Operands of one shape, which are sorted together along a dim, with the first num_keys operands as
// keys; one result for each operand. -0 equals 0; NaNs come last and are equal. Always stable.
extern Primitive sort_p;
// The k largest elements along the last dim, in descending order, and their indices (i32). A NaN
// counts as the largest.
extern Primitive top_k_p;

struct SortParams : ParamsOf<SortParams> {
  explicit SortParams(std::int64_t dim, int keys = 1) : dimension(dim), num_keys(keys) {}
  std::int64_t dimension;
  std::int64_t num_keys;
  bool is_stable = true;
  void visit(ParamVisitor& v) const override {
    v.value("dimension", dimension);
    v.value("is_stable", is_stable);
    v.value("num_keys", num_keys);
  }
};

struct TopKParams : ParamsOf<TopKParams> {
  TopKParams(std::int64_t dim, std::int64_t count) : axis(dim), k(count) {}
  std::int64_t axis;  // the last dim
  std::int64_t k;
  void visit(ParamVisitor& v) const override {
    v.value("axis", axis);
    v.value("k", k);
  }
};

}  // namespace shmap
