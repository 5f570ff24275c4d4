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

extern Primitive psum_p;                  // AxesParams, as pbroadcast_p
extern Primitive pmax_p, pmin_p;          // AxesParams
extern Primitive all_gather_p;            // AllGatherParams
extern Primitive psum_scatter_p;          // ScatterParams
extern Primitive all_gather_invariant_p;  // AllGatherParams
extern Primitive pscatter_p;              // ScatterParams
extern Primitive all_to_all_p;            // AllToAllParams
extern Primitive ppermute_p;              // PermuteParams
extern Primitive axis_index_p;            // NamesParams
extern Primitive broadcast_from_p;        // SourceParams
extern Primitive assume_equal_p;          // AxesParams; only in lowered programs

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
