// split and unstack: the pieces of one array along a dim.
#include <algorithm>

#include "core/array/sharding.h"
#include "core/compiler/lowering/sharding_constraint.h"
#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

int checked_dim(const Operand& x, int dim, const char* what) {
  const int rank = type_of(x, what).rank();
  return at_source(x.source, [&] { return normalize_dim(dim, rank, what); });
}

// A bound as NumPy reads it: negative bounds count from the end, and bounds are clamped to the
// extent.
std::int64_t clip_bound(std::int64_t at, std::int64_t extent) {
  return std::clamp<std::int64_t>(at < 0 ? at + extent : at, 0, extent);
}

// Gathers a dim that is split over devices once, instead of once per piece. In traced programs,
// simplification merges the equal gathers instead.
void gather_dim(Operand& x, int dim) {
  const StoredNode* node = stored_of(primal_of(x.value));
  if (!node || node->trace != 0 || !node->sharding || current_trace().staged()) return;
  const auto at = static_cast<std::size_t>(dim);
  if (node->sharding->parts(at) == 1) return;
  std::vector<PartitionSpec::Entry> entries = node->sharding->spec().entries();
  entries[at] = none;
  const Sharding* target = node->mesh->sharding(PartitionSpec(std::move(entries)));
  x.value = bind(sharding_constraint_p, x.value, ConstraintParams(target), x.source);
}

}  // namespace

std::vector<Array> split(Operand x, Dims indices_or_sections, int axis) {
  const int dim = checked_dim(x, axis, "split");
  const std::int64_t extent = x.value.shape()[static_cast<std::size_t>(dim)];
  std::vector<std::int64_t> bounds{0};
  if (indices_or_sections.is_list()) {
    for (std::int64_t at : indices_or_sections) bounds.push_back(clip_bound(at, extent));
    bounds.push_back(extent);
  } else {
    const std::int64_t sections = indices_or_sections[0];
    if (sections < 1 || extent % sections != 0) {
      throw ValueError("split: dim " + std::to_string(dim) + " of extent " +
                       std::to_string(extent) + " into " + std::to_string(sections) +
                       " sections: the extent must be a multiple of the sections; give a list of "
                       "places instead" +
                       at_line(x.source));
    }
    for (std::int64_t s = 1; s <= sections; ++s) bounds.push_back(extent / sections * s);
  }
  gather_dim(x, dim);
  std::vector<Array> pieces;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    pieces.push_back(
        slice_dim(x.value, dim, bounds[i], std::max(bounds[i], bounds[i + 1]), x.source));
  }
  return pieces;
}

std::vector<Array> unstack(Operand x, int axis) {
  const int dim = checked_dim(x, axis, "unstack");
  const std::int64_t extent = x.value.shape()[static_cast<std::size_t>(dim)];
  gather_dim(x, dim);
  std::vector<Array> items;
  for (std::int64_t i = 0; i < extent; ++i) {
    Array item = slice_dim(x.value, dim, i, i + 1, x.source);
    items.push_back(squeeze(Operand(std::move(item), x.source.file, x.source.line), Dims(dim)));
  }
  return items;
}

}  // namespace shmap
