// The collective primitives and their parameters, which print under JAX's names. Axes are names,
// major first; groups are lists of ranks over these axes, empty where all ranks form one group.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "core/ir/pbroadcast.h"
#include "core/ir/primitive.h"
#include "shmap/axes.h"
#include "shmap/collectives.h"

namespace shmap {

// X(name, operands, parameters): the primitive name_p, the number of its operands, and the word by
// which core/extend/collective_syntax.cpp finds the function that reads its parameters from a
// text:
//   axes, axes_alone        AxesParams, with axis_index_groups and without
//   gather                  AllGatherParams
//   scatter, scatter_alone  ScatterParams, with axis_index_groups and without
//   all_to_all, permute     AllToAllParams, PermuteParams
//   names, source           NamesParams, SourceParams
// assume_equal occurs only in lowered programs.
#define SHMAP_COLLECTIVE_PRIMITIVES(X) \
  X(psum, 1, axes)                     \
  X(pmax, 1, axes)                     \
  X(pmin, 1, axes)                     \
  X(all_gather, 1, gather)             \
  X(all_gather_invariant, 1, gather)   \
  X(psum_scatter, 1, scatter)          \
  X(pscatter, 1, scatter_alone)        \
  X(all_to_all, 1, all_to_all)         \
  X(ppermute, 1, permute)              \
  X(broadcast_from, 1, source)         \
  X(axis_index, 0, names)              \
  X(assume_equal, 1, axes_alone)

#define SHMAP_PRIMITIVE(name, operands, parameters) extern Primitive name##_p;
SHMAP_COLLECTIVE_PRIMITIVES(SHMAP_PRIMITIVE)
#undef SHMAP_PRIMITIVE

namespace detail {
inline void visit_groups(ParamVisitor& v, const Groups& groups) {
  if (!groups.empty()) v.value("axis_index_groups", groups);
}
}  // namespace detail

struct AllGatherParams : ParamsOf<AllGatherParams> {
  Axes axes;
  Groups groups;
  int dimension = 0;  // of the result; not negative
  int ranks = 1;      // of a group
  bool tiled = false;
  void visit(ParamVisitor& v) const override {
    v.value("all_gather_dimension", std::int64_t{dimension});
    detail::visit_groups(v, groups);
    v.value("axis_name", axes.names());
    v.value("axis_size", std::int64_t{ranks});
    v.value("tiled", tiled);
  }
};

struct ScatterParams : ParamsOf<ScatterParams> {
  Axes axes;
  Groups groups;      // empty in pscatter
  int dimension = 0;  // of the operand; not negative
  int ranks = 1;
  bool tiled = false;
  void visit(ParamVisitor& v) const override {
    detail::visit_groups(v, groups);
    v.value("axis_name", axes.names());
    v.value("axis_size", std::int64_t{ranks});
    v.value("scatter_dimension", std::int64_t{dimension});
    v.value("tiled", tiled);
  }
};

// The parameters of a collective from those of its transpose: all_gather and psum_scatter are each
// other's transposes, and so are all_gather_invariant and pscatter.
inline ScatterParams dual_of(const AllGatherParams& p) {
  ScatterParams dual;
  dual.axes = p.axes;
  dual.groups = p.groups;
  dual.dimension = p.dimension;
  dual.ranks = p.ranks;
  dual.tiled = p.tiled;
  return dual;
}
inline AllGatherParams dual_of(const ScatterParams& p) {
  AllGatherParams dual;
  dual.axes = p.axes;
  dual.groups = p.groups;
  dual.dimension = p.dimension;
  dual.ranks = p.ranks;
  dual.tiled = p.tiled;
  return dual;
}

struct AllToAllParams : ParamsOf<AllToAllParams> {
  Axes axes;
  Groups groups;
  int split_axis = 0, concat_axis = 0;  // not negative
  int ranks = 1;
  bool tiled = false;
  void visit(ParamVisitor& v) const override {
    detail::visit_groups(v, groups);
    v.value("axis_name", axes.names());
    v.value("axis_size", std::int64_t{ranks});
    v.value("concat_axis", std::int64_t{concat_axis});
    v.value("split_axis", std::int64_t{split_axis});
    v.value("tiled", tiled);
  }
};

struct PermuteParams : ParamsOf<PermuteParams> {
  PermuteParams(Axes a, std::vector<std::pair<int, int>> p)
      : axes(std::move(a)), perm(std::move(p)) {}
  Axes axes;
  std::vector<std::pair<int, int>> perm;  // {from, to}
  void visit(ParamVisitor& v) const override {
    v.value("axis_name", axes.names());
    v.value("perm", perm);
  }
};

struct NamesParams : ParamsOf<NamesParams> {
  explicit NamesParams(Axes a) : axes(std::move(a)) {}
  Axes axes;
  void visit(ParamVisitor& v) const override { v.value("axis_name", axes.names()); }
};

struct SourceParams : ParamsOf<SourceParams> {
  SourceParams(Axes a, int r) : axes(std::move(a)), rank(r) {}
  Axes axes;
  int rank;
  void visit(ParamVisitor& v) const override {
    v.value("axis_name", axes.names());
    v.value("source", std::int64_t{rank});
  }
};

}  // namespace shmap
