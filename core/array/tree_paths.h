// The paths that error texts name the leaves of a tree by, and its structure.
#pragma once
#include <string>
#include <vector>

#include "shmap/tree.h"

namespace shmap {

// Of the i-th child of a node whose path is given: "args[1]", "args['w']", "args.field(0)".
std::string child_path(const std::string& path, const detail::TreeNode& node, std::size_t i);
// "args[1].field(0)['w']": one path a leaf, in order.
std::vector<std::string> leaf_paths(const detail::TreeNode& tree, const std::string& root);
// The same containers with the same keys and lengths.
bool same_structure(const detail::TreeNode& a, const detail::TreeNode& b);
// "[*, {'w': *}]": a leaf is a star.
std::string structure_text(const detail::TreeNode& tree);

}  // namespace shmap
