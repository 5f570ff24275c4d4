#include "core/array/node_order.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace shmap {

std::vector<std::size_t> node_order(std::span<const int> nodes) {
  std::unordered_map<int, std::size_t> first;  // first position of each node
  for (std::size_t i = 0; i < nodes.size(); ++i) first.try_emplace(nodes[i], i);
  std::vector<std::size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return first.at(nodes[a]) < first.at(nodes[b]);
  });
  return order;
}

}  // namespace shmap
