// A program's own function named attention is preferred to the library's, whatever it takes.
#include <gtest/gtest.h>

#include <vector>

#include "shmap/shmap.h"

using namespace shmap;

namespace {

// With the parameters that the library's own functions have, the nearest rival.
Array attention(Operand q, Operand k, Operand v) { return q.value + k.value + v.value; }

Array attention(const Array& q, const Array& k, const Array& v, bool is_causal) {
  return is_causal ? q : q + k + v;
}

TEST(OwnAttention, IsPreferredToTheLibrarys) {
  const Array x = full({2}, 1.f);
  EXPECT_EQ(attention(x, x, 2.f).to_vector<float>(), std::vector<float>({4.f, 4.f}));
  EXPECT_EQ(attention(x, x, x).to_vector<float>(), std::vector<float>({3.f, 3.f}));
  EXPECT_EQ(attention(x, x, x, true).to_vector<float>(), std::vector<float>({1.f, 1.f}));
}

TEST(OwnAttention, TheLibrarysIsReachedByItsQualifiedName) {
  const Array x = full({1, 1, 1}, 1.f);
  EXPECT_EQ(shmap::attention(x, x, 2 * x).to_vector<float>(), std::vector<float>({2.f}));
}

}  // namespace
