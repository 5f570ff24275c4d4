// Matches a tree of specs with a tree of values.
#pragma once
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/array/tree_paths.h"
#include "shmap/partition_spec.h"
#include "shmap/tree.h"

namespace shmap {

struct LeafSpec {
  const PartitionSpec* spec;
  std::string spec_path;  // the path of the spec: "in_specs[0]['w']"
};

// One spec per leaf of `tree`, in order; a spec at an inner node holds for all leaves below it.
// `specs_name` and `tree_name` name the roots in errors. ValueError where the trees do not match:
// lengths, keys, or a list of specs at a leaf.
std::vector<LeafSpec> match_specs(const Specs& specs, const detail::TreeNode& tree,
                                  const std::string& specs_name, const std::string& tree_name);

// Whether an array of this type can be split as its spec says.
bool fits_spec(const ShapedArray& type, const PartitionSpec& spec, const Sharding& sharding);
// For an array that cannot be split: the text that says what does not fit, and what to do. `path`
// names the array ("args[0]").
std::string misfit_text(const ShapedArray& type, const LeafSpec& spec, const Sharding& sharding,
                        const std::string& path);

// ValueError where any spec of the tree names an unknown axis, or an axis twice.
void validate_specs(const Specs& specs, const detail::AxisEnv& env, const std::string& name);

}  // namespace shmap
