#include "core/array/tree_paths.h"

#include <bit>

#include "core/ir/trace.h"
#include "shmap/tree_map.h"

namespace shmap {

using detail::TreeNode;

namespace {
// The number among all members of a struct of the member that is child `i`.
std::size_t member_of_child(const TreeNode& node, std::size_t i) {
  std::size_t member = 0;
  for (;; ++member) {
    if (node.static_members >> member & 1u) continue;
    if (i-- == 0) return member;
  }
}
}  // namespace

std::optional<std::vector<std::size_t>> entries_of_children(std::size_t entries,
                                                            const TreeNode& node) {
  const std::size_t count = node.children.size();
  const bool all = entries == count + static_cast<std::size_t>(std::popcount(node.static_members));
  if (entries != count && !all) return std::nullopt;
  std::vector<std::size_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = all ? member_of_child(node, i) : i;
  return out;
}

std::string child_path(const std::string& path, const TreeNode& node, std::size_t i) {
  if (node.kind == TreeNode::map) return path + "['" + node.keys[i] + "']";
  if (node.kind == TreeNode::fields)
    return path + ".field(" + std::to_string(member_of_child(node, i)) + ")";
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

void detail::check_same_tree(const TreeNode& first, const TreeNode& other, std::size_t number,
                             SourceLine source) {
  if (same_structure(first, other)) return;
  throw ValueError("tree_map: trees[" + std::to_string(number) + "] has the structure " +
                   structure_text(other) + ", and trees[0] has " + structure_text(first) +
                   ": give trees of one structure" + at_line(source));
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
