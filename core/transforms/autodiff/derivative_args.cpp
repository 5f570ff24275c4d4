#include "core/transforms/autodiff/derivative_args.h"

#include "core/array/tree_paths.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"

namespace shmap {

using detail::FlatTree;
using detail::TreeNode;

namespace {

std::string axes_text(const AxisSet& axes) {
  return axes.empty() ? "no mesh axis" : "the mesh axes " + to_string(Axes(axes.names()));
}

std::size_t count_leaves(const TreeNode& node) {
  if (node.kind == TreeNode::leaf) return 1;
  std::size_t n = 0;
  for (const TreeNode& child : node.children) n += count_leaves(child);
  return n;
}

class Matcher {
 public:
  Matcher(const DerivativeSite& site, const FlatTree& given, const TreeNode& wanted,
          std::span<const ShapedArray> types)
      : site_(site), given_(given), wanted_(wanted), types_(types) {}

  std::vector<Array> run() {
    match(given_.node, wanted_, site_.what);
    return std::move(out_);
  }

 private:
  void match(const TreeNode& given, const TreeNode& wanted, const std::string& path) {
    if (given.kind == TreeNode::absent) {
      out_.resize(out_.size() + count_leaves(wanted));
      return;
    }
    if (given.kind != wanted.kind || given.keys != wanted.keys ||
        given.children.size() != wanted.children.size()) {
      throw TypeError(site_.what + " has the structure " + structure_text(given_.node) + ", and " +
                      site_.of + " has " + structure_text(wanted_) +
                      ": give a tree of that structure; none stands for zeros" +
                      at_line(site_.source));
    }
    if (wanted.kind == TreeNode::leaf) {
      const ShapedArray& type = types_[out_.size()];
      Array x = fit_derivative(site_, path, given_.leaves[next_++], type);
      out_.push_back(is_differentiable(type.dtype()) ? std::move(x) : Array());
      return;
    }
    for (std::size_t i = 0; i < wanted.children.size(); ++i)
      match(given.children[i], wanted.children[i], child_path(path, wanted, i));
  }

  const DerivativeSite& site_;
  const FlatTree& given_;
  const TreeNode& wanted_;
  std::span<const ShapedArray> types_;
  std::size_t next_ = 0;
  std::vector<Array> out_;
};

}  // namespace

Array fit_derivative(const DerivativeSite& site, const std::string& path, Array given,
                     const ShapedArray& type) {
  const Node& node = checked_node(given, path.c_str(), site.source);
  if (node.trace != 0 && !is_active(node.trace)) throw_escaped(node, path.c_str(), site.source);
  if (node.kind == NodeKind::literal)
    given = convert_operand(std::move(given), type.dtype(), path.c_str(), site.source);
  const ShapedArray& t = node_of(given)->type;
  // The value whose type is wanted: "args[0]" where `path` is "the cotangents[0]".
  const auto owner = [&] {
    return path.starts_with(site.what) ? site.of + path.substr(site.what.size()) : site.of;
  };
  if (t.dtype() != type.dtype() || !(t.dims() == type.dims())) {
    throw TypeError(
        path + " has type " + to_string(t) + ", and " + owner() + " has type " + to_string(type) +
        ": " + (t.dims() == type.dims() ? "convert it with astype" : "give one of that shape") +
        at_line(site.source));
  }
  if (!current_trace().checks_variance() || t.axes() == type.axes()) return given;
  if (!type.axes().contains(t.axes())) {
    throw TypeError(path + " has type " + to_string(t) + ", which varies over " +
                    axes_text(t.axes()) + ", and " + owner() + " has type " + to_string(type) +
                    ", which varies over " + axes_text(type.axes()) + ": " + site.remedy +
                    at_line(site.source));
  }
  const AxisSet missing = type.axes() - t.axes();
  if (site.exact && node_of(given)->kind != NodeKind::literal) {
    throw TypeError(path + " has type " + to_string(t) + ", which varies over " +
                    axes_text(t.axes()) + ", and " + owner() + " has type " + to_string(type) +
                    ", which varies over " + axes_text(type.axes()) +
                    ": a rule gives the types that the function has, variance included. Where each "
                    "device is meant to have this value, cast it with pbroadcast(x, " +
                    to_string(Axes(missing.names())) + ")" + at_line(site.source));
  }
  return cast_to_varying(given, missing, site.source);
}

std::vector<Array> fit_derivatives(const DerivativeSite& site, const FlatTree& given,
                                   const TreeNode& wanted, std::span<const ShapedArray> types) {
  return Matcher(site, given, wanted, types).run();
}

std::vector<ShapedArray> argument_types(const char* what, const FlatTree& arguments,
                                        SourceLine source) {
  std::vector<ShapedArray> types;
  for (const Array& x : arguments.leaves) {
    const Node& node = checked_node(x, what, source);
    if (node.trace != 0 && !is_active(node.trace)) throw_escaped(node, what, source);
    types.push_back(node.type);
  }
  return types;
}

void fill_zeros(std::vector<Array>& values, std::span<const ShapedArray> types, SourceLine source) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!values[i].node()) values[i] = zeros_of(types[i], source);
}

}  // namespace shmap
