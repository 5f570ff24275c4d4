#include "shard_map/spec_tree.h"

#include <algorithm>

#include "core/array/sharding.h"
#include "core/array/tree_paths.h"
#include "core/base/counted.h"

namespace shmap {

namespace {

using detail::TreeNode;

class Matcher {
 public:
  std::vector<LeafSpec> found;

  void match(const Specs& specs, const TreeNode& tree, const std::string& specs_path,
             const std::string& tree_path) {
    if (tree.kind == TreeNode::absent) return;
    if (specs.kind() == Specs::leaf) return spread(specs.spec(), tree, specs_path);
    const std::string given = specs_path + " = " + to_string(specs);
    if (tree.kind == TreeNode::leaf) {
      throw ValueError(given + " is a " + (specs.kind() == Specs::map ? "map" : "list") +
                       " of specs, and " + tree_path + " is an array: give it one P");
    }
    if ((specs.kind() == Specs::map) != (tree.kind == TreeNode::map)) {
      throw ValueError(given + " is a " + (specs.kind() == Specs::map ? "map" : "list") +
                       " of specs, and " + tree_path + " is " + noun(tree) +
                       ": the specs must have the same structure as the value, or be one P for " +
                       "all of it");
    }
    if (specs.kind() == Specs::map) return match_map(specs, tree, specs_path, tree_path);
    const auto entries = entries_of_children(specs.size(), tree);
    if (!entries) {
      throw ValueError(given + " has " + counted(specs.size(), "entry", "entries") + ", and " +
                       tree_path + " is " + noun(tree) + " of " +
                       std::to_string(tree.children.size()) +
                       ": give one spec for each entry, or one P for all");
    }
    for (std::size_t i = 0; i < entries->size(); ++i) {
      const std::size_t entry = (*entries)[i];
      match(specs[entry], tree.children[i], specs_path + "[" + std::to_string(entry) + "]",
            child_path(tree_path, tree, i));
    }
  }

 private:
  void match_map(const Specs& specs, const TreeNode& tree, const std::string& specs_path,
                 const std::string& tree_path) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (std::find(tree.keys.begin(), tree.keys.end(), specs.key(i)) == tree.keys.end()) {
        throw ValueError(specs_path + " has a spec for the key '" + specs.key(i) + "', which " +
                         tree_path + " does not hold: leave it out");
      }
    }
    for (std::size_t i = 0; i < tree.children.size(); ++i) {
      std::size_t k = 0;
      while (k < specs.size() && specs.key(k) != tree.keys[i]) ++k;
      if (k == specs.size()) {
        throw ValueError(specs_path + " has no spec for " + child_path(tree_path, tree, i) +
                         ": add {\"" + tree.keys[i] + "\", P(…)}");
      }
      match(specs[k], tree.children[i], specs_path + "['" + tree.keys[i] + "']",
            child_path(tree_path, tree, i));
    }
  }

  void spread(const PartitionSpec& spec, const TreeNode& tree, const std::string& specs_path) {
    if (tree.kind == TreeNode::leaf) found.push_back({&spec, specs_path});
    for (const TreeNode& child : tree.children) spread(spec, child, specs_path);
  }
};

}  // namespace

std::vector<LeafSpec> match_specs(const Specs& specs, const TreeNode& tree,
                                  const std::string& specs_name, const std::string& tree_name) {
  Matcher matcher;
  matcher.match(specs, tree, specs_name, tree_name);
  return std::move(matcher.found);
}

bool fits_spec(const ShapedArray& type, const PartitionSpec& spec, const Sharding& sharding) {
  const Shape& shape = type.dims();
  if (spec.size() > shape.size()) return false;
  for (std::size_t d = 0; d < sharding.dims().size(); ++d)
    if (shape[d] % sharding.parts(d) != 0) return false;
  return true;
}

std::string misfit_text(const ShapedArray& type, const LeafSpec& spec, const Sharding& sharding,
                        const std::string& path) {
  const Shape& shape = type.dims();
  if (spec.spec->size() > shape.size()) {
    return path + " (" + spec.spec_path + "): the spec " + to_string(*spec.spec) + " has length " +
           std::to_string(spec.spec->size()) + ", which is more than the rank " +
           std::to_string(shape.size()) + " of an array of type " + to_string(type) +
           (shape.empty() ? ": a scalar's spec is P()" : ": leave out the last entries");
  }
  try {
    sharding.block_shape(shape, path + " (" + spec.spec_path + ")");
  } catch (const ValueError& e) {
    return e.what();
  }
  return {};
}

void validate_specs(const Specs& specs, const detail::AxisEnv& env, const std::string& name) {
  if (specs.kind() == Specs::leaf) return validate_spec(specs.spec(), env, name);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    for (std::size_t before = 0; before < i && specs.kind() == Specs::map; ++before) {
      if (specs.key(before) != specs.key(i)) continue;
      throw ValueError(name + " = " + to_string(specs) + " has two specs for the key '" +
                       specs.key(i) + "': give one for each key");
    }
    validate_specs(specs[i], env,
                   specs.kind() == Specs::map ? name + "['" + specs.key(i) + "']"
                                              : name + "[" + std::to_string(i) + "]");
  }
}

}  // namespace shmap
