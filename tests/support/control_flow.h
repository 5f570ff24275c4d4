// Code that the tests of loops and branches share.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "core/runtime/host_transfer.h"
#include "shmap/shmap.h"

namespace shmap::test {

template <class T = float>
std::vector<T> values(const Array& x) {
  return x.to_vector<T>();
}
// Returns f staged and evaluated equation by equation. Checks that jit gives the same when it is
// planned and when it is replayed.
template <class F, class... A>
std::vector<Array> staged(F f, const A&... args) {
  const std::vector<Array> results = eval_jaxpr(make_jaxpr(f)(args...), {Array(args)...});
  const auto jitted = jit(f);
  for (int call = 0; call < 3; ++call) {
    detail::FlatTree flat;
    detail::flatten(jitted(args...), flat, flat.node);
    EXPECT_EQ(flat.leaves.size(), results.size());
    for (std::size_t k = 0; k < results.size(); ++k) {
      EXPECT_EQ(flat.leaves[k].type(), results[k].type()) << "result " << k << " of call " << call;
      EXPECT_EQ(copy_to_host(flat.leaves[k], "jit"), copy_to_host(results[k], "staged"))
          << "result " << k << " of call " << call;
    }
  }
  return results;
}
// A settled scalar, on a device.
template <class T>
Array scalar(T value) {
  return array({value}, Shape({}));
}
inline Mesh mesh_i() { return make_mesh({8}, {"i"}); }
inline Array split_i(const Array& x) { return device_put(x, NamedSharding(mesh_i(), P("i"))); }

}  // namespace shmap::test
