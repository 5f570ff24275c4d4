#include "shmap/shard_map.h"

#include <algorithm>

#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "core/compiler/lowering/automatic_axes.h"
#include "core/compiler/lowering/per_device.h"
#include "shard_map/mapped.h"
#include "shard_map/primitive.h"
#include "shard_map/spec_tree.h"

namespace shmap::detail {

namespace {

std::uint32_t named_axes(const Axes& names, const AxisEnv& env) {
  std::uint32_t mask = 0;
  for (const std::string& name : names) {
    const int axis = env.find(name);
    if (axis < 0) {
      throw ValueError("shard_map: axis_names " + to_string(names) + " has '" + name + "'" +
                       did_you_mean(name, env.names) + ", and the mesh has the axes " +
                       describe_axes(env) + ": name axes of the mesh");
    }
    if (mask >> axis & 1u) {
      throw ValueError("shard_map: axis_names " + to_string(names) + " names '" + name +
                       "' twice: name each axis once");
    }
    mask |= 1u << axis;
  }
  return mask;
}

}  // namespace

ShardMapInfo::ShardMapInfo(AnyMesh m, Specs in, Specs out, ShardMapOptions o, SourceLine s)
    : mesh(m), in_specs(std::move(in)), out_specs(std::move(out)), options(o), source(s) {
  try {
    axes = named_axes(options.axis_names, *mesh.env());
    validate_specs(in_specs, *mesh.env(), "shard_map: in_specs");
    validate_specs(out_specs, *mesh.env(), "shard_map: out_specs");
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  }
}

namespace {

std::string braces(const AxisSet& axes) {
  std::string s;
  for (const std::string& n : axes.names()) s += (s.empty() ? "'" : ", '") + n + "'";
  return "{" + s + "}";
}

// The axes that the function is mapped over in a call under this trace.
MappedAxes mapped_axes(const ShardMapInfo& info, const Trace& trace, const MeshImpl* mesh,
                       const MappedLines& lines) {
  const AxisEnv& env = *mesh->env();
  const auto fail = [&](const std::string& problem) {
    throw ValueError("shard_map: called in the body of another shard_map, " + problem +
                     lines.text());
  };
  MappedAxes axes;
  if (const AxisEnv* around = trace.axis_env()) {
    const MeshImpl* const outer = mesh_of_body();
    const bool other = outer && outer != mesh && !outer->is_abstract() && !mesh->is_abstract();
    for (std::size_t a = 0; a < around->names.size(); ++a) {
      const int axis = env.find(around->names[a]);
      if (axis < 0 || env.sizes[static_cast<std::size_t>(axis)] != around->sizes[a] || other) {
        fail("which is mapped over " + describe_axes(*around) + ", and over the mesh " +
             describe_axes(env) +
             ": nested mapped functions have one mesh, with its devices in one order, and the "
             "outer one leaves axes of it to the inner one by {.axis_names = ...}");
      }
      axes.outer |= 1u << axis;
    }
  }
  axes.own = info.axes != 0 ? info.axes : all_axes(*mesh) & ~axes.outer;
  if (const std::uint32_t both = axes.own & axes.outer) {
    fail("which is mapped over " + braces(AxisSet(&env, both)) +
         " already: leave out of axis_names and specs what the outer function is mapped over");
  }
  if (axes.own == 0 && axes.outer != 0) {  // (a mesh may be without axes)
    fail(
        "which is mapped over all axes of the mesh: name in the outer function's options the axes "
        "that it is mapped over, shard_map(f, mesh, in_specs, out_specs, {.axis_names = \"" +
        env.names.front() + "\"}), and leave the others to this one");
  }
  return axes;
}

// "": the spec names axes that the function is mapped over, and no others.
std::string foreign_axes_text(const Sharding& sharding, const MappedAxes& axes) {
  const std::uint32_t foreign = sharding.mentioned() & ~axes.own;
  if (foreign == 0) return "";
  const AxisEnv* env = sharding.mesh()->env();
  return ": the spec " + to_string(sharding.spec()) + " names " + braces(AxisSet(env, foreign)) +
         ", and the function is mapped over " + braces(AxisSet(env, axes.own)) + " alone" +
         ((foreign & axes.outer) != 0
              ? ", inside of a body that is mapped over " + braces(AxisSet(env, axes.outer)) +
                    ": leave these out, an argument is one device's block along them already"
              : ": along other axes an array stays split as it is; leave them out, or name them in "
                "axis_names");
}

// The user's line of a call; none where the line is in a header that calls functions for others.
SourceLine users_line(SourceLine called) {
  if (!called.file) return {};
  const std::string_view file = called.file;
  const bool ours = file.ends_with("/shmap/flat_call.h") || file == "shmap/flat_call.h";
  return ours || file.find("/include/c++/") != file.npos ? SourceLine{} : called;
}

// One message names every leaf that does not fit, and not only the first.
void throw_all(const std::vector<std::string>& problems, const std::string& remedy,
               const MappedLines& lines) {
  if (problems.empty()) return;
  std::string text = "shard_map: ";
  if (problems.size() > 1) text += std::to_string(problems.size()) + " problems:\n  * ";
  for (std::size_t i = 0; i < problems.size(); ++i) text += (i ? "\n  * " : "") + problems[i];
  throw ValueError(text + remedy + lines.text());
}

std::string result_text(const Origin& origin) {
  if (origin.op == nullptr || origin.op == kArgument || origin.op == kCaptured) return "";
  return std::string("; the value is the result of ") + origin.op +
         (origin.source.file ? " at " + origin.source.str() : "");
}

// For a block that has one dim fewer than the spec assumes.
std::string dropped_dim_text(const Origin& origin) {
  const std::string op = origin.op ? origin.op : "";
  if (op != "psum_scatter" && op != "pscatter" && op != "all_to_all") return "";
  return ", which without {.tiled = true} leaves out the dim that it cuts";
}

// The sharding of each argument leaf; one error names every leaf that does not fit its spec.
std::vector<const Sharding*> check_arguments(const MeshImpl* mesh, const MappedAxes& axes,
                                             const ShardMapInfo& info, const MappedLines& lines,
                                             const FlatTree& arguments) {
  const Specs& specs = info.in_specs;
  std::vector<LeafSpec> leaf_specs;
  try {
    if (specs.kind() != Specs::leaf && specs.size() != arguments.node.children.size()) {
      throw ValueError("in_specs = " + to_string(specs) + " has " +
                       counted(specs.size(), "entry", "entries") +
                       ", and the function was called with " +
                       counted(arguments.node.children.size(), "argument") +
                       ": give one entry for each argument, or one P for all");
    }
    leaf_specs = match_specs(specs, arguments.node, "in_specs", "args");
  } catch (const ValueError& e) {
    throw ValueError("shard_map: " + std::string(e.what()) + lines.text());
  }
  std::vector<std::string> problems;
  std::vector<const Sharding*> shardings;
  std::vector<std::string> names;
  const auto path_of = [&](std::size_t i) {
    if (names.empty()) names = leaf_paths(arguments.node, "args");
    return names[i];
  };
  for (std::size_t i = 0; i < arguments.leaves.size(); ++i) {
    const Sharding* sharding = mesh->sharding(*leaf_specs[i].spec);
    shardings.push_back(sharding);
    const Node* node = node_of(arguments.leaves[i]);
    if (!node)
      checked_node(arguments.leaves[i], ("shard_map: " + path_of(i)).c_str(), lines.site());
    if (node->trace != 0 && !is_active(node->trace))
      throw_escaped(*node, ("shard_map: " + path_of(i)).c_str(), lines.site());
    if (std::string foreign = foreign_axes_text(*sharding, axes); !foreign.empty())
      problems.push_back(path_of(i) + " (" + leaf_specs[i].spec_path + ")" + foreign);
    if (!fits_spec(node->type, *leaf_specs[i].spec, *sharding))
      problems.push_back(misfit_text(node->type, leaf_specs[i], *sharding, path_of(i)));
    if (std::string other = other_devices("", arguments.leaves[i], mesh); !other.empty())
      problems.push_back(path_of(i) + other);
  }
  throw_all(problems, "", lines);
  return shardings;
}

// The sharding of each result leaf, from the types of its blocks.
std::vector<const Sharding*> check_results(const MeshImpl* mesh, const MappedAxes& axes,
                                           const ShardMapInfo& info, const MappedLines& lines,
                                           const TreeNode& result, std::span<const Origin> origins,
                                           std::span<const ShapedArray> types) {
  std::vector<LeafSpec> leaf_specs;
  try {
    leaf_specs = match_specs(info.out_specs, result, "out_specs", "the result");
  } catch (const ValueError& e) {
    throw ValueError("shard_map: " + std::string(e.what()) + lines.text());
  }
  std::vector<std::string> rank_problems, variance_problems;
  std::vector<const Sharding*> shardings;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const ShapedArray& type = types[i];
    const PartitionSpec& spec = *leaf_specs[i].spec;
    const Sharding* sharding = mesh->sharding(spec);
    shardings.push_back(sharding);
    const auto path = [&] {
      return leaf_paths(result, "the result")[i] + " (" + leaf_specs[i].spec_path + ")";
    };
    if (spec.size() > type.dims().size()) {
      rank_problems.push_back(
          path() + ": the spec " + to_string(spec) + " has length " + std::to_string(spec.size()) +
          ", which is more than the rank " + std::to_string(type.rank()) + " of a block of type " +
          to_string(type) +
          (type.rank() == 0 ? ": a scalar's spec is P(); reshape it to {1} to concatenate it"
                            : ": leave out the last entries") +
          result_text(origins[i]) + dropped_dim_text(origins[i]));
    }
    if (std::string foreign = foreign_axes_text(*sharding, axes); !foreign.empty())
      rank_problems.push_back(path() + foreign);
    if (!info.options.check_vma) continue;
    const std::uint32_t extra =
        type.axes().mask_in(*mesh->env()) & axes.own & ~sharding->mentioned();
    if (extra != 0) {
      variance_problems.push_back(
          path() + ": the spec " + to_string(spec) + " leaves out mesh axes " +
          braces(AxisSet(mesh->env(), extra)) + ", which promises that the blocks are equal " +
          "over them, and the block's type " + to_string(type) +
          " is statically inferred to vary over " + braces(type.axes()) + result_text(origins[i]));
    }
  }
  throw_all(rank_problems, "", lines);
  throw_all(variance_problems,
            "\n  Mention the axes in the out_spec, make the value equal over them (psum, pmax, "
            "all_gather_invariant), or "
            "turn the check off with {.check_vma = false} where you know that it is.",
            lines);
  return shardings;
}

}  // namespace

std::vector<Array> call_shard_map(const ShardMapInfo& info, SourceLine called, FlatTree arguments,
                                  BodyRef body) {
  const Trace& trace = current_trace();
  const MappedLines lines{info.source, users_line(called)};
  if (!info.mesh.mesh() && !trace.staged()) {
    throw DeviceError(
        "shard_map: the mesh " + describe_axes(*info.mesh.env()) +
        " is abstract and has no devices, so the function cannot run: map it over a Mesh, or trace "
        "it with make_jaxpr" +
        lines.text());
  }
  MappedCall call;
  call.mesh = info.mesh.mesh() ? info.mesh.mesh() : MeshImpl::abstract(info.mesh.env());
  call.axes = mapped_axes(info, trace, call.mesh, lines);
  call.options = info.options;
  call.lines = lines;
  call.source = lines.site();
  call.in_shardings = check_arguments(call.mesh, call.axes, info, lines, arguments);
  if (trace.staged() || trace.transforms()) call.names = leaf_paths(arguments.node, "args");
  call.in = std::move(arguments.leaves);
  TreeNode structure;
  std::vector<Origin> origins;  // of the results
  call.body = [&](std::vector<Array> blocks) {
    FlatTree result;
    body(blocks, result);
    structure = std::move(result.node);
    origins.assign(result.leaves.size(), Origin());
    for (std::size_t o = 0; o < result.leaves.size(); ++o)
      if (const Node* node = node_of(result.leaves[o])) origins[o] = origin_of(*node);
    return std::move(result.leaves);
  };
  call.out_shardings = [&structure, &origins, &info, lines, mesh = call.mesh,
                        axes = call.axes](std::span<const ShapedArray> types) {
    return check_results(mesh, axes, info, lines, structure, origins, types);
  };
  return map_over(std::move(call));
}

}  // namespace shmap::detail
