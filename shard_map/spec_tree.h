// Matching a tree of specs against a tree of values.
#pragma once
#include <string>
#include <vector>

#include "core/array/tree_paths.h"
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

// Throws where any spec of the tree names an unknown axis or an axis twice.
void validate_specs(const Specs& specs, const detail::AxisEnv& env, const std::string& name);

}  // namespace shmap
