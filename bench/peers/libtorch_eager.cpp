// One eager op in libtorch C++, as a peer: an add of 1 K floats without autograd.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/headeronly/version.h>

#include <chrono>
#include <memory>

#include "bench/support/data.h"
#include "bench/support/rows.h"

namespace {

struct Tensors {
  std::vector<float> a = shmap::bench::random_floats(1024, 1);
  std::vector<float> b = shmap::bench::random_floats(1024, 2);
  at::Tensor x = at::from_blob(a.data(), {1024}).clone();
  at::Tensor y = at::from_blob(b.data(), {1024}).clone();
  at::Tensor z;
};

shmap::bench::Work eager_op() {
  auto t = std::make_shared<Tensors>();
  auto time_batch = [t](std::int64_t n) {
    auto start = std::chrono::steady_clock::now();
    for (std::int64_t k = 0; k < n; ++k) t->z = t->x + t->y;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  auto check = [t]() -> std::string {
    std::vector<float> want(1024);
    for (std::size_t k = 0; k < want.size(); ++k) want[k] = t->a[k] + t->b[k];
    return shmap::bench::difference({t->z.data_ptr<float>(), want.size()},
                                    std::span<const float>(want));
  };
  return {{}, check, time_batch};
}

}  // namespace

int main(int argc, char** argv) {
  c10::InferenceMode guard;
  at::set_num_threads(2);
  return shmap::bench::bench_main(argc, argv, "libtorch", {{"eager_op", {}, eager_op}},
                                  {{"libtorch", TORCH_VERSION}});
}
