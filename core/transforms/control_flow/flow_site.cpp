#include "core/transforms/control_flow/flow_site.h"

#include <vector>

#include "core/array/tree_paths.h"

namespace shmap {

std::string FlowSite::path(std::size_t leaf, const char* root) const {
  if (leaf < hidden) return "the loop index";
  // The results of a program have no tree.
  const std::vector<std::string> paths =
      tree ? leaf_paths(*tree, root) : std::vector<std::string>();
  if (leaf - hidden < paths.size()) return paths[leaf - hidden];
  return std::string(root) + " leaf " + std::to_string(leaf - hidden);
}

}  // namespace shmap
