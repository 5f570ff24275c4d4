// FlowSite: the loop or branch in the user's code, for errors.
#pragma once
#include <cstddef>
#include <string>

#include "shmap/error.h"
#include "shmap/tree.h"

namespace shmap {

struct FlowSite {
  const char* what;  // "scan"
  // of the carry or the result; null where the leaves have no tree
  const detail::TreeNode* tree = nullptr;
  // leaves before those of the tree: the index of a fori_loop
  std::size_t hidden = 0;
  SourceLine source;
  // "carry[1]"
  std::string path(std::size_t leaf, const char* root) const;
};

}  // namespace shmap
