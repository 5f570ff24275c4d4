#include "collectives/scope.h"

#include <vector>

#include "collectives/primitives.h"
#include "core/array/sharding.h"
#include "core/base/nearest_name.h"
#include "core/ir/node.h"

namespace shmap {

namespace {

[[noreturn]] void throw_unbound(const std::string& name, const detail::AxisEnv* env,
                                const char* what, SourceLine source) {
  std::string text = std::string(what) + ": unbound axis name '" + name + "'" +
                     (env ? did_you_mean(name, env->names) : std::string()) + ": ";
  if (env == nullptr || env->names.empty()) {
    text +=
        "no mesh axes are in scope here. Collectives work on the blocks of devices: call it in "
        "the body of a shard_map over a mesh that has this axis";
  } else {
    text += "the mesh axes in scope are " + describe_axes(*env) +
            ". Name one of these, or give the shard_map a mesh that has this axis (where it has "
            "axis_names, these must name it)";
  }
  throw CollectiveError(text + at_line(source));
}

// The axes whose bit is set in the mask, in the order given.
Axes chosen(const Axes& axes, std::uint32_t mask, const detail::AxisEnv& env) {
  std::vector<std::string> names;
  for (const std::string& name : axes)
    if (mask >> env.find(name) & 1u) names.push_back(name);
  return Axes(names);
}

}  // namespace

AxesInScope::AxesInScope(const Axes& axes, const char* what, SourceLine source)
    : env(current_trace().axis_env()) {
  for (const std::string& name : axes) {
    const int axis = env == nullptr ? -1 : env->find(name);
    if (axis < 0) throw_unbound(name, env, what, source);
    if (mask >> axis & 1u) {
      throw ValueError(std::string(what) + ": axis '" + name + "' is named twice in " +
                       to_string(axes) + ": name each mesh axis once" + at_line(source));
    }
    mask |= 1u << axis;
    ranks *= static_cast<int>(env->sizes[static_cast<std::size_t>(axis)]);
  }
  if (env == nullptr) env = detail::AxisEnv::empty();  // over no axes there is nothing to look up
}

int group_size(const Groups& groups, int ranks, const char* what, const Axes& axes,
               SourceLine source) {
  if (groups.empty()) return ranks;
  const auto fail = [&](const std::string& problem) {
    throw ValueError(std::string(what) + ": axis_index_groups: " + problem +
                     ". The groups must hold each of the " + describe_ranks(axes, ranks) +
                     " once, and have equal sizes" + at_line(source));
  };
  std::vector<bool> seen(static_cast<std::size_t>(ranks));
  int count = 0;
  for (const std::vector<int>& group : groups) {
    if (group.size() != groups.front().size()) {
      fail("one group has " + std::to_string(groups.front().size()) + " ranks and another " +
           std::to_string(group.size()));
    }
    for (int rank : group) {
      if (rank < 0 || rank >= ranks) fail("rank " + std::to_string(rank) + " is out of range");
      if (seen[static_cast<std::size_t>(rank)])
        fail("rank " + std::to_string(rank) + " is listed twice");
      seen[static_cast<std::size_t>(rank)] = true;
      ++count;
    }
  }
  if (count != ranks) {
    std::string missing;
    for (int r = 0; r < ranks; ++r) {
      if (!seen[static_cast<std::size_t>(r)])
        missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    }
    fail("ranks " + missing + " are in no group");
  }
  return static_cast<int>(groups.front().size());
}

Array cast_to_varying(const Array& x, const Axes& axes, const AxesInScope& scope, const char* what,
                      SourceLine source) {
  const ShapedArray& type = checked_node(x, what, source).type;
  if (scope.mask == 0) return x;
  const std::uint32_t missing = scope.mask & ~type.axes().mask_in(*scope.env);
  if (missing == 0) return x;
  const Trace& trace = current_trace();
  if (!trace.checks_variance() || !trace.casts()) return x;
  return bind(pbroadcast_p, x, AxesParams(chosen(axes, missing, *scope.env)), source);
}

std::string describe_ranks(const Axes& axes, int ranks) {
  std::string text = std::to_string(ranks) + " ranks over mesh " +
                     (axes.size() == 1 ? "axis " : "axes ") + to_string(axes);
  const detail::AxisEnv* env = current_trace().axis_env();
  if (axes.size() < 2 || env == nullptr) return text;
  text += " of sizes ";
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = env->find(axes[i]);
    if (axis < 0) return text;
    text += (i ? ", " : "") + std::to_string(env->sizes[static_cast<std::size_t>(axis)]);
  }
  return text;
}

void throw_not_cut(const char* what, const std::string& dim, const ShapedArray& in,
                   std::int64_t extent, bool tiled, const Axes& axes, int ranks,
                   const Groups& groups) {
  const std::string all =
      "the " + describe_ranks(axes, ranks) + (groups.empty() ? "" : " of each group");
  std::string text = std::string(what) + ": " + dim + " of an operand of type " + to_string(in) +
                     " has " + std::to_string(extent) + " elements, ";
  if (tiled) {
    text += "which cannot be cut evenly among " + all + ": a multiple of " + std::to_string(ranks) +
            " is wanted; pad the dim to one";
  } else if (extent % ranks == 0) {
    text +=
        "and without {.tiled = true} one element is wanted for each of " + all +
        ", and the dim is left out of the result. Probably {.tiled = true} is meant, which keeps "
        "the dim: it cuts it into " +
        std::to_string(ranks) + " parts of " + std::to_string(extent / ranks) +
        ", one for each rank";
  } else {
    text += "and one element is wanted for each of " + all +
            " ({.tiled = true} takes a multiple of " + std::to_string(ranks) +
            "): pad the dim to a size that fits";
  }
  throw ValueError(text);
}

std::uint32_t mask_of(const Axes& axes, const detail::AxisEnv& env, const char* what) {
  std::uint32_t mask = 0;
  for (const std::string& name : axes) {
    const int axis = env.find(name);
    if (axis < 0) throw_unbound(name, &env, what, {});
    mask |= 1u << axis;
  }
  return mask;
}

namespace {

// 0 where the size of an axis is not known.
std::int64_t ranks_over(const Axes& axes, const detail::AxisEnv& env, const char* what) {
  std::int64_t ranks = 1;
  for (const std::string& name : axes) {
    const int axis = env.find(name);
    if (axis < 0) throw_unbound(name, &env, what, {});
    ranks *= env.sizes[static_cast<std::size_t>(axis)];
  }
  return ranks;
}

[[noreturn]] void throw_other_mesh(const char* what, const std::string& has, const Axes& axes,
                                   std::int64_t ranks) {
  throw ValueError(std::string(what) + ": its equation " + has + ", and there are " +
                   describe_ranks(axes, static_cast<int>(ranks)) +
                   ": it was made for another mesh; trace the function for this one");
}

}  // namespace

void require_ranks(const Axes& axes, const Groups& groups, int ranks, const detail::AxisEnv& env,
                   const char* what) {
  const std::int64_t all = ranks_over(axes, env, what);
  std::int64_t given = groups.empty() ? ranks : 0;
  for (const std::vector<int>& group : groups) given += static_cast<std::int64_t>(group.size());
  if (all == 0 || all == given) return;
  throw_other_mesh(what,
                   (groups.empty() ? "is over " : "has groups of ") + std::to_string(given) +
                       (groups.empty() ? " ranks" : " ranks together"),
                   axes, all);
}

void require_rank(const Axes& axes, int named, const detail::AxisEnv& env, const char* what) {
  const std::int64_t all = ranks_over(axes, env, what);
  if (all != 0 && named >= all)
    throw_other_mesh(what, "names rank " + std::to_string(named), axes, all);
}

void require_varying(const ShapedArray& x, const Axes& axes, std::uint32_t mask,
                     const detail::AxisEnv& env, const char* what) {
  const std::uint32_t missing = mask & ~x.axes().mask_in(env);
  if (missing == 0 || !current_trace().checks_variance()) return;
  const std::string names = to_string(chosen(axes, missing, env));
  throw TypeError(std::string(what) + " over " + to_string(axes) + " of a value of type " +
                  to_string(x) + ", which does not vary over " + names +
                  ": cast it with pbroadcast(x, " + names + ") first, or turn auto_pbroadcast on");
}

void require_invariant(const ShapedArray& x, const Axes& axes, std::uint32_t mask,
                       const detail::AxisEnv& env, const char* what) {
  const std::uint32_t extra = mask & x.axes().mask_in(env);
  if (extra == 0 || !current_trace().checks_variance()) return;
  throw TypeError(std::string(what) + " over " + to_string(axes) + " of a value of type " +
                  to_string(x) + ", which varies over " + to_string(chosen(axes, extra, env)) +
                  " already: " + what +
                  " is for values that are the same over all of the axes; leave these axes out, or "
                  "make the value equal over them (psum, pmax, all_gather_invariant) first");
}

void varying_to_varying(Types in, const Axes& axes, const detail::AxisEnv& env,
                        std::span<ShapedArray> out, const char* what) {
  const std::uint32_t mask = mask_of(axes, env, what);
  require_varying(in[0], axes, mask, env, what);
  out[0] = out[0].with_axes(AxisSet(&env, in[0].axes().mask_in(env) | mask));
}

void varying_to_invariant(Types in, const Axes& axes, const detail::AxisEnv& env,
                          std::span<ShapedArray> out, const char* what) {
  const std::uint32_t mask = mask_of(axes, env, what);
  require_varying(in[0], axes, mask, env, what);
  out[0] = out[0].with_axes(AxisSet(&env, in[0].axes().mask_in(env) & ~mask));
}

void varying_to_invariant(Types in, const Axes& axes, const Groups& groups,
                          const detail::AxisEnv& env, std::span<ShapedArray> out,
                          const char* what) {
  if (groups.empty()) return varying_to_invariant(in, axes, env, out, what);
  require_ranks(axes, groups, 0, env, what);
  varying_to_varying(in, axes, env, out, what);
}

void invariant_to_varying(Types in, const Axes& axes, const detail::AxisEnv& env,
                          std::span<ShapedArray> out, const char* what) {
  const std::uint32_t mask = mask_of(axes, env, what);
  require_invariant(in[0], axes, mask, env, what);
  out[0] = out[0].with_axes(AxisSet(&env, in[0].axes().mask_in(env) | mask));
}

}  // namespace shmap
