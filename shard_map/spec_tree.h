// Matching a tree of specs against a tree of values, and the paths that error texts name leaves by.
#pragma once
#include <string>
#include <vector>

#include "shmap/partition_spec.h"
#include "shmap/tree.h"

namespace shmap {

struct LeafSpec {
  const PartitionSpec* spec;
  std::string spec_path;  // "in_specs[0]['w']": where the spec stands
};

// One spec a leaf of `tree`, in order; a spec stands for the whole subtree that it meets.
// `specs_name` and `tree_name` name the roots in errors. ValueError where the trees do not fit:
// lengths, keys, or a list where a leaf is.
std::vector<LeafSpec> match_specs(const Specs& specs, const detail::TreeNode& tree,
                                  const std::string& specs_name, const std::string& tree_name);

// "args[1].field(0)['w']": one path a leaf, in order.
std::vector<std::string> leaf_paths(const detail::TreeNode& tree, const std::string& root);

// Throws where any spec of the tree names an unknown axis or an axis twice.
void validate_specs(const Specs& specs, const detail::AxisEnv& env, const std::string& name);

}  // namespace shmap
