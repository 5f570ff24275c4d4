// The paths by which error messages name the leaves of a tree, and the tree's structure as text.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "shmap/tree.h"

namespace shmap {

// The number of the entry for each child of a node in a list of specs or axes; nothing where the
// list does not fit. A list for a struct has an entry for each member that holds arrays, or one for
// each member, of which those for static members say nothing.
std::optional<std::vector<std::size_t>> entries_of_children(std::size_t entries,
                                                            const detail::TreeNode& node);
// The path of child `i` of a node, from the node's path: "args[1]", "args['w']", "args.field(0)".
// Fields are numbered with the static members of their struct.
std::string child_path(const std::string& path, const detail::TreeNode& node, std::size_t i);
// One path per leaf, in order: "args[1].field(0)['w']".
std::vector<std::string> leaf_paths(const detail::TreeNode& tree, const std::string& root);
// True if both trees have the same containers with the same keys and lengths.
bool same_structure(const detail::TreeNode& a, const detail::TreeNode& b);
// "[*, {'w': *}]", with a star for each leaf.
std::string structure_text(const detail::TreeNode& tree);
// What a node is: "a list", "an array".
const char* noun(const detail::TreeNode& node);

}  // namespace shmap
