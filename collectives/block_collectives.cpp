#include "collectives/block_collectives.h"

#include "core/ir/trace.h"
#include "shmap/collectives.h"

namespace shmap {

namespace {

Axes names(const std::vector<int>& axes) {
  const detail::AxisEnv* env = current_trace().axis_env();
  std::vector<std::string> out;
  for (int a : axes) out.push_back(env->names[static_cast<std::size_t>(a)]);
  return Axes(out);
}

}  // namespace

Array gather_block(const Array& block, const std::vector<int>& axes, int dim, SourceLine source) {
  AllGatherOptions options;
  options.axis = dim;
  options.tiled = true;
  return detail::all_gather_invariant_leaf(block, names(axes), options, source);
}

Array scatter_block(const Array& block, const std::vector<int>& axes, int dim, SourceLine source) {
  PscatterOptions options;
  options.scatter_dimension = dim;
  options.tiled = true;
  return detail::pscatter_leaf(block, names(axes), options, source);
}

Array exchange_block(const Array& block, const std::vector<int>& axes, int split, int concat,
                     SourceLine source) {
  AllToAllOptions options;
  options.tiled = true;
  return detail::all_to_all_leaf(block, names(axes), split, concat, options, source);
}

Array combine_block(const Array& block, const std::vector<int>& axes, FactorKind kind,
                    SourceLine source) {
  switch (kind) {
    case FactorKind::max:
      return detail::pmax_leaf(block, names(axes), {}, source);
    case FactorKind::min:
      return detail::pmin_leaf(block, names(axes), {}, source);
    default:
      return detail::psum_leaf(block, names(axes), {}, source);
  }
}

}  // namespace shmap
