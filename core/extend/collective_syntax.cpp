// The parameters of collectives, by name, for programs built by hand or read from a text.
#include <set>

#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "core/extend/param_reader.h"

namespace shmap {

namespace {

using Read = std::shared_ptr<const Params>;
using Reader = ParamReader;

// Checks that the axes are in scope, each named once.
AxesInScope scope_of(Reader& r, const Axes& axes) { return {axes, r.primitive(), {}}; }

Groups read_groups(Reader& r, const Axes& axes) {
  if (!r.has("axis_index_groups")) return {};
  Groups groups = r.groups("axis_index_groups");
  const int ranks = scope_of(r, axes).ranks;
  std::size_t count = 0;
  for (const std::vector<int>& group : groups) count += group.size();
  // Checked before group_size allocates memory in proportion to the mesh's size.
  if (count != static_cast<std::size_t>(std::max(ranks, 0)) || groups.empty())
    r.fail("'axis_index_groups' must have each of the " + describe_ranks(axes, ranks) + " once");
  group_size(groups, ranks, r.primitive(), axes, {});
  return groups;
}

int read_ranks(Reader& r, const Axes& axes, const Groups& groups) {
  const std::int64_t given = r.index("axis_size", std::int64_t{1} << 31);
  const int ranks =
      groups.empty() ? scope_of(r, axes).ranks : static_cast<int>(groups.front().size());
  // ranks is 0 for axes of types written by hand, whose sizes are not known.
  if (given == 0 || (ranks != 0 && given != ranks)) {
    r.fail("'axis_size' is " + std::to_string(given) + ", and there are " +
           describe_ranks(axes, ranks));
  }
  return static_cast<int>(given);
}

Read read_axes(Reader& r) {
  const Axes axes(r.names("axes"));
  scope_of(r, axes);
  return std::make_shared<AxesParams>(axes, read_groups(r, axes));
}
Read read_axes_alone(Reader& r) {
  const Axes axes(r.names("axes"));
  scope_of(r, axes);
  return std::make_shared<AxesParams>(axes);
}

Read read_gather(Reader& r) {
  auto p = std::make_shared<AllGatherParams>();
  p->axes = Axes(r.names("axis_name"));
  p->groups = read_groups(r, p->axes);
  p->ranks = read_ranks(r, p->axes, p->groups);
  p->tiled = r.has("tiled") && r.flag("tiled");
  p->dimension = r.index("all_gather_dimension", r.operands()[0].rank() + !p->tiled);
  return p;
}

template <bool has_groups>
Read read_pieces(Reader& r) {
  auto p = std::make_shared<ScatterParams>();
  p->axes = Axes(r.names("axis_name"));
  if (has_groups) p->groups = read_groups(r, p->axes);
  p->ranks = read_ranks(r, p->axes, p->groups);
  p->tiled = r.has("tiled") && r.flag("tiled");
  p->dimension = r.index("scatter_dimension", r.operands()[0].rank());
  return p;
}

Read read_scatter(Reader& r) { return read_pieces<true>(r); }
Read read_scatter_alone(Reader& r) { return read_pieces<false>(r); }

Read read_all_to_all(Reader& r) {
  auto p = std::make_shared<AllToAllParams>();
  p->axes = Axes(r.names("axis_name"));
  p->groups = read_groups(r, p->axes);
  p->ranks = read_ranks(r, p->axes, p->groups);
  p->tiled = r.has("tiled") && r.flag("tiled");
  p->split_axis = r.index("split_axis", r.operands()[0].rank());
  p->concat_axis = r.index("concat_axis", r.operands()[0].rank());
  return p;
}

Read read_permute(Reader& r) {
  const Axes axes(r.names("axis_name"));
  const int ranks = scope_of(r, axes).ranks;
  std::vector<std::pair<int, int>> perm = r.pairs("perm");
  std::set<int> from, to;
  for (const auto& [f, t] : perm) {
    const bool inside = f >= 0 && t >= 0 && (ranks == 0 || (f < ranks && t < ranks));
    if (!inside || !from.insert(f).second || !to.insert(t).second) {
      r.fail("'perm' has the pair (" + std::to_string(f) + ", " + std::to_string(t) +
             "), which is out of range or has a rank twice in its place: there are " +
             describe_ranks(axes, ranks));
    }
  }
  return std::make_shared<PermuteParams>(axes, std::move(perm));
}

Read read_names(Reader& r) {
  const Axes axes(r.names("axis_name"));
  scope_of(r, axes);
  return std::make_shared<NamesParams>(axes);
}

Read read_source(Reader& r) {
  const Axes axes(r.names("axis_name"));
  const int ranks = scope_of(r, axes).ranks;
  return std::make_shared<SourceParams>(
      axes, r.index("source", ranks == 0 ? std::int64_t{1} << 31 : ranks));
}

}  // namespace

void register_collective_syntax() {
  pbroadcast_p.syntax = {1, 1, read_axes_alone, nullptr};
#define SHMAP_SYNTAX(name, operands, parameters) \
  name##_p.syntax = {operands, operands, read_##parameters, nullptr};
  SHMAP_COLLECTIVE_PRIMITIVES(SHMAP_SYNTAX)
#undef SHMAP_SYNTAX
}

}  // namespace shmap
