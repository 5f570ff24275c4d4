#include "core/array/node_order.h"

#include <gtest/gtest.h>

namespace shmap {
namespace {

using Order = std::vector<std::size_t>;

Order order_of(std::vector<int> nodes) { return node_order(nodes); }

TEST(NodeOrder, OneNodeStaysAsItIs) {
  EXPECT_EQ(order_of({}), Order{});
  EXPECT_EQ(order_of({7, 7, 7}), (Order{0, 1, 2}));
  EXPECT_EQ(order_of({0, 0, 1, 1}), (Order{0, 1, 2, 3}));
}

// The order of mpirun --map-by node: processes with two devices each, alternating between two
// nodes.
TEST(NodeOrder, DevicesOfANodeAreNeighbours) {
  EXPECT_EQ(order_of({0, 0, 1, 1, 0, 0, 1, 1}), (Order{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(order_of({2, 0, 1, 2, 0, 1}), (Order{0, 3, 1, 4, 2, 5}));
}

TEST(NodeOrder, NodesMayHaveUnequallyMany) {
  EXPECT_EQ(order_of({3, 1, 3, 3, 1, 5}), (Order{0, 2, 3, 1, 4, 5}));
}

}  // namespace
}  // namespace shmap
