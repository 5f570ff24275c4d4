#include "shmap/vmap.h"

#include "core/array/tree_paths.h"
#include "core/base/counted.h"
#include "core/transforms/vmap/batch.h"

namespace shmap {

std::string to_string(const InAxes& axes) {
  if (axes.kind() == InAxes::axis) return std::to_string(axes.dim());
  if (axes.kind() == InAxes::absent) return "none";
  std::string text = "{";
  for (std::size_t i = 0; i < axes.size(); ++i) text += (i ? ", " : "") + to_string(axes[i]);
  return text + "}";
}

namespace detail {

namespace {

// The axis of one leaf, and the entry of in_axes that gives it.
struct LeafAxis {
  const InAxes* axis;
  std::string path;  // "in_axes[0]"
};

void spread(const InAxes& axes, const TreeNode& tree, const std::string& path,
            std::vector<LeafAxis>& out) {
  if (tree.kind == TreeNode::leaf) out.push_back({&axes, path});
  for (const TreeNode& child : tree.children) spread(axes, child, path, out);
}

void match(const InAxes& axes, const TreeNode& tree, const std::string& path,
           const std::string& tree_path, std::vector<LeafAxis>& out) {
  if (tree.kind == TreeNode::absent) return;
  if (axes.kind() != InAxes::list) return spread(axes, tree, path, out);
  const std::string given = path + " = " + to_string(axes);
  if (tree.kind == TreeNode::leaf) {
    throw ValueError(given + " is a list, and " + tree_path +
                     " is an array: give it one axis, or none");
  }
  const auto entries = entries_of_children(axes.size(), tree);
  if (!entries) {
    throw ValueError(given + " has " + counted(axes.size(), "entry", "entries") + ", and " +
                     tree_path + " is " + noun(tree) + " of " +
                     std::to_string(tree.children.size()) +
                     ": give one axis for each entry, or one for all");
  }
  for (std::size_t i = 0; i < entries->size(); ++i) {
    const std::size_t entry = (*entries)[i];
    match(axes[entry], tree.children[i], path + "[" + std::to_string(entry) + "]",
          child_path(tree_path, tree, i), out);
  }
}

[[noreturn]] void fail(const VmapInfo& info, const std::string& problem) {
  throw ValueError("vmap: " + problem +
                   (info.source.file ? "\n  in the vmap made at " + info.source.str() : ""));
}

std::vector<LeafAxis> match_axes(const VmapInfo& info, const InAxes& axes, const TreeNode& tree,
                                 const char* axes_name, const char* tree_name) {
  std::vector<LeafAxis> out;
  try {
    match(axes, tree, axes_name, tree_name, out);
  } catch (const ValueError& e) {
    fail(info, e.what());
  }
  return out;
}

// The axis as a non-negative dim of a value of `rank` dims.
int checked_axis(const VmapInfo& info, const LeafAxis& given, int rank, const std::string& what) {
  const int dim = given.axis->dim();
  if (dim >= -rank && dim < rank) return dim < 0 ? dim + rank : dim;
  fail(info, what + " (" + given.path + " = " + std::to_string(dim) +
                 "): the axis is out of range" +
                 (rank == 0 ? ": a scalar has no dims; give it none, as it has no batch dim"
                            : ": wanted one from " + std::to_string(-rank) + " to " +
                                  std::to_string(rank - 1)));
}

// The size that all batch dims share; otherwise an error that names every argument.
std::int64_t common_size(const VmapInfo& info, const std::vector<std::string>& paths,
                         const Batch& args) {
  std::int64_t size = -1;
  bool equal = true;
  std::string sizes;
  for (std::size_t i = 0; i < args.values.size(); ++i) {
    const ShapedArray& type = node_of(args.values[i])->type;
    sizes += "\n  * " + paths[i] + " of type " + to_string(type);
    if (args.dims[i] < 0) {
      sizes += " has no batch dim";
      continue;
    }
    const std::int64_t here = type.dims()[static_cast<std::size_t>(args.dims[i])];
    sizes += " has size " + std::to_string(here) + " along axis " + std::to_string(args.dims[i]);
    equal = equal && (size < 0 || here == size);
    size = here;
  }
  if (size < 0) {
    fail(info, "in_axes = " + to_string(info.in_axes) +
                   " gives no argument a batch dim, so that the batch size is not known: give one "
                   "of them an axis, or call the function without vmap" +
                   sizes);
  }
  if (!equal) {
    fail(info,
         "the batch dims of the arguments have different sizes, and one size is wanted; give "
         "another axis, or none for an argument that has no batch dim:" +
             sizes);
  }
  return size;
}

}  // namespace

std::vector<Array> call_vmap(const VmapInfo& info, FlatTree arguments, BodyRef body) {
  ensure_started();
  if (info.in_axes.kind() == InAxes::list &&
      info.in_axes.size() != arguments.node.children.size()) {
    fail(info, "in_axes = " + to_string(info.in_axes) + " has " +
                   counted(info.in_axes.size(), "entry", "entries") +
                   ", and the function was called with " +
                   counted(arguments.node.children.size(), "argument") +
                   ": give one entry for each argument, or one axis for all");
  }
  const std::vector<LeafAxis> in =
      match_axes(info, info.in_axes, arguments.node, "in_axes", "args");
  const std::vector<std::string> paths = leaf_paths(arguments.node, "args");
  Batch args;
  for (std::size_t i = 0; i < in.size(); ++i) {
    Array& x = arguments.leaves[i];
    const std::string what = "vmap: " + paths[i];
    const Node& node = checked_node(x, what.c_str(), info.source);
    if (node.trace != 0 && !is_active(node.trace)) throw_escaped(node, what.c_str(), info.source);
    args.dims.push_back(in[i].axis->kind() == InAxes::absent
                            ? -1
                            : checked_axis(info, in[i], node.type.rank(),
                                           paths[i] + " of type " + to_string(node.type)));
    args.values.push_back(std::move(x));
  }
  const std::int64_t size = common_size(info, paths, args);
  FlatTree result;
  Batch made = batch_of(body, std::move(args), size, result, info.source);
  const std::vector<LeafAxis> out =
      match_axes(info, info.out_axes, result.node, "out_axes", "the result");
  for (std::size_t o = 0; o < out.size(); ++o) {
    Array& x = made.values[o];
    const int dim = made.dims[o];
    const auto what = [&](int rank) {
      const std::string path = leaf_paths(result.node, "the result")[o];
      return path + ", which has " + counted(rank, "dim") + " with the batch dim";
    };
    if (out[o].axis->kind() == InAxes::absent) {
      if (dim < 0) continue;
      fail(info,
           leaf_paths(result.node, "the result")[o] + " (" + out[o].path +
               " = none) has a batch dim, since it depends on a batched argument: give it the "
               "axis where its batch dim, of size " +
               std::to_string(size) + ", goes");
    }
    const int rank = node_of(x)->type.rank() + (dim < 0 ? 1 : 0);
    const int at = checked_axis(info, out[o], rank, what(rank));
    x = with_batch_dim(x, dim, at, size, info.source);
  }
  return std::move(made.values);
}

}  // namespace detail
}  // namespace shmap
