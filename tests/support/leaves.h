// Transforms of functions from leaves to leaves, for tests that want no trees.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "core/tracing/trace_function.h"
#include "core/transforms/autodiff/linearize.h"
#include "core/transforms/autodiff/transpose.h"

namespace shmap::testing {

using Leaves = std::vector<Array>;
using LeafFunction = std::function<Leaves(Leaves)>;

struct LeafBody {
  const LeafFunction& f;
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
    result.leaves = f(std::move(leaves));
    result.node.kind = detail::TreeNode::list;
    leaves.clear();
  }
};

inline Linearized linearize_leaves(const LeafFunction& f, Leaves primals,
                                   std::vector<bool> active = {}) {
  if (active.empty()) active.assign(primals.size(), true);
  LeafBody body{f};
  detail::FlatTree result;
  return linearize_of(detail::BodyRef(body), std::move(primals), active, result, {});
}

inline Duals jvp_leaves(const LeafFunction& f, Leaves primals, Leaves tangents) {
  LeafBody body{f};
  detail::FlatTree result;
  return jvp_of(detail::BodyRef(body), std::move(primals), tangents, result, {});
}

// The transpose of a function that is linear in all its arguments, which are of these types.
inline LeafFunction transposed(const LeafFunction& f, const std::vector<ShapedArray>& types) {
  return [f, types](Leaves cotangents) {
    LeafBody body{f};
    detail::FlatTree result;
    Traced traced =
        trace_function("linear_transpose", types, detail::BodyRef(body), result, {}, {});
    Leaves args = std::move(traced.consts);
    args.resize(traced.jaxpr->binders.size());
    return backward_pass(*traced.jaxpr, std::move(args), std::move(cotangents));
  };
}

}  // namespace shmap::testing
