#include "core/array/tree_paths.h"

namespace shmap {

using detail::TreeNode;

std::string child_path(const std::string& path, const TreeNode& node, std::size_t i) {
  if (node.kind == TreeNode::map) return path + "['" + node.keys[i] + "']";
  if (node.kind == TreeNode::fields) return path + ".field(" + std::to_string(i) + ")";
  return path + "[" + std::to_string(i) + "]";
}

namespace {
void collect_paths(const TreeNode& tree, const std::string& path, std::vector<std::string>& out) {
  if (tree.kind == TreeNode::leaf) out.push_back(path);
  for (std::size_t i = 0; i < tree.children.size(); ++i)
    collect_paths(tree.children[i], child_path(path, tree, i), out);
}

}  // namespace

std::vector<std::string> leaf_paths(const TreeNode& tree, const std::string& root) {
  std::vector<std::string> out;
  collect_paths(tree, root, out);
  return out;
}

bool same_structure(const TreeNode& a, const TreeNode& b) {
  if (a.kind != b.kind || a.keys != b.keys || a.children.size() != b.children.size()) return false;
  for (std::size_t i = 0; i < a.children.size(); ++i)
    if (!same_structure(a.children[i], b.children[i])) return false;
  return true;
}

std::string structure_text(const TreeNode& tree) {
  if (tree.kind == TreeNode::leaf) return "*";
  if (tree.kind == TreeNode::absent) return "none";
  const bool map = tree.kind == TreeNode::map;
  std::string text = map ? "{" : tree.kind == TreeNode::fields ? "struct(" : "[";
  for (std::size_t i = 0; i < tree.children.size(); ++i) {
    if (i) text += ", ";
    if (map) text += "'" + tree.keys[i] + "': ";
    text += structure_text(tree.children[i]);
  }
  return text + (map ? "}" : tree.kind == TreeNode::fields ? ")" : "]");
}

const char* noun(const TreeNode& node) {
  switch (node.kind) {
    case TreeNode::leaf:
      return "an array";
    case TreeNode::list:
      return "a list";
    case TreeNode::map:
      return "a map";
    case TreeNode::fields:
      return "a struct";
    case TreeNode::absent:
      return "nothing";
  }
  return "";
}

}  // namespace shmap
