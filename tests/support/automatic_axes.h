// What the tests of shard_map over some axes of a mesh share: a mesh of three axes, arrays that are
// split over them, and a comparison.
#pragma once
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace shmap::test {

inline Mesh mesh222() { return make_mesh({2, 2, 2}, {"x", "y", "z"}); }
inline ShardMapOptions over(Axes axes) {
  ShardMapOptions options;
  options.axis_names = std::move(axes);
  return options;
}
inline Array placed(const Array& x, const Mesh& mesh, P spec) {
  return device_put(x, NamedSharding(mesh, spec));
}
inline Array wave(const Shape& shape) {
  return sin(reshape(arange(static_cast<float>(shape.num_elements())), shape));
}
inline void expect_near(const Array& got, const Array& want, const std::string& what = "") {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const std::vector<float> a = got.to_vector<float>(), b = want.to_vector<float>();
  for (std::size_t k = 0; k < a.size(); ++k)
    ASSERT_NEAR(a[k], b[k], 1e-4f * (1 + std::abs(b[k]))) << what << ", element " << k;
}

}  // namespace shmap::test
