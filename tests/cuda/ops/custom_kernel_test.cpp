// Users' primitives with CUDA kernels: eagerly, in bodies, captured and replayed.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <stdexcept>
#include <tuple>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using extend::KernelArgs;
using test::expect_error;
using testing::ElementsAre;

// The elements in two halves, the second first: work that is enqueued and not waited for.
extend::Primitive swap_halves() {
  extend::Primitive p("swap_halves");
  p.def_abstract_eval([](ShapedArray x) { return x; }).def_cuda_kernel([](const KernelArgs& k) {
    const auto bytes = static_cast<std::size_t>(k.in_types[0].nbytes()), half = bytes / 2;
    auto* const stream = static_cast<cudaStream_t>(k.stream);
    const char* const in = k.input<char>(0);
    char* const out = k.output<char>();
    for (const auto& [to, from, n] :
         {std::tuple(out, in + half, bytes - half), std::tuple(out + bytes - half, in, half)}) {
      if (cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, stream) != cudaSuccess)
        throw std::runtime_error("the copy was refused");
    }
  });
  return p;
}

TEST(CustomCudaKernel, RunsOnArraysAndHostScalars) {
  const auto p = swap_halves();
  EXPECT_THAT(p.bind(arange(4) * 1.f).to_vector<float>(), ElementsAre(2, 3, 0, 1));
  EXPECT_EQ((p.bind(p.bind(7)) + 1).item<std::int32_t>(), 8);
}

TEST(CustomCudaKernel, IsOrderedWithWhatWritesAndReads) {
  const auto p = swap_halves();
  Array x = arange(1024) * 1.f;
  for (int k = 0; k < 50; ++k) x = p.bind(x + 1.f) * 2.f - x;
  Array y = arange(1024) * 1.f;
  for (int k = 0; k < 50; ++k) {
    const Array z = y + 1.f;
    y = concatenate({z[range(512, 1024)], z[range(0, 512)]}, 0) * 2.f - y;
  }
  EXPECT_EQ(x.to_vector<float>(), y.to_vector<float>());
}

TEST(CustomCudaKernel, IsPartOfBodiesAndOfGraphs) {
  const Mesh mesh = make_mesh({8}, {"i"});
  const auto f = jit(shard_map([p = swap_halves()](Array x) { return psum(p.bind(x * 2.f), "i"); },
                               mesh, P("i"), P()));
  for (int call = 0; call < 5; ++call) {
    const Array x =
        device_put(arange(16) * 1.f + static_cast<float>(call), NamedSharding(mesh, P("i")));
    const float even = 112.f + 16.f * static_cast<float>(call);
    EXPECT_THAT(f(x).to_vector<float>(), ElementsAre(even + 16, even)) << call;
  }
}

TEST(CustomCudaKernel, ItsErrorsNameIt) {
  extend::Primitive p("fails");
  p.def_abstract_eval([](ShapedArray x) { return x; }).def_cuda_kernel([](const KernelArgs&) {
    throw std::runtime_error("no luck");
  });
  expect_error<DeviceError>([&] { p.bind(ones({2})).block_until_ready(); },
                            {"no luck", "fails", "CudaDevice(id=0)"});
  EXPECT_EQ((ones({2}) + 1.f).to_vector<float>()[1], 2);
}

}  // namespace
}  // namespace shmap
