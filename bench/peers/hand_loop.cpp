// The eager body, written by hand with the library's own CPU kernels: ten elementwise kernels per
// device and one pass that sums over the devices, on the calling thread, into buffers that are
// reused. What the library's eager body takes beyond this loop's time is the price of eager mode.
#include <cmath>
#include <memory>

#include "bench/support/data.h"
#include "bench/support/rows.h"
#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/unary.h"
#include "core/cpu/kernels/reduce/combine.h"

namespace {

using shmap::BinaryOp;
using shmap::DType;
using shmap::UnaryOp;
using shmap::bench::Work;
using shmap::cpu::BinaryFn;
using shmap::cpu::UnaryFn;

constexpr int kDevices = 8;
constexpr std::int64_t kElements = 1024;  // a device

struct Loop {
  Loop() {
    for (int d = 0; d < kDevices; ++d) {
      x.push_back(shmap::bench::random_floats(kElements, std::uint64_t(d)));
      y.emplace_back(kElements);
      ranks[d] = y.back().data();
    }
  }

  void call() {
    for (int d = 0; d < kDevices; ++d) {
      const float* in = x[std::size_t(d)].data();
      float* out = y[std::size_t(d)].data();
      sin(in, out, kElements);
      mul(out, false, in, false, out, kElements);
      sin(out, out, kElements);
      add(out, false, in, false, out, kElements);
      sin(out, out, kElements);
      mul(out, false, in, false, out, kElements);
      sin(out, out, kElements);
      add(out, false, in, false, out, kElements);
      sin(out, out, kElements);
      sub(out, false, in, false, out, kElements);
    }
    shmap::cpu::combine_ranks(shmap::Reduction::sum, DType::f32, ranks, kDevices, sum.data(), 0,
                              kElements);
  }

  std::string check() const {
    std::vector<double> want(kElements, 0.0);
    for (const std::vector<float>& block : x) {
      for (std::size_t k = 0; k < block.size(); ++k) {
        double v = block[k];
        double w = std::sin(std::sin(std::sin(v) * v) + v);
        want[k] += std::sin(std::sin(w * v) + v) - v;
      }
    }
    return shmap::bench::difference(sum, want, 1e-4);
  }

  UnaryFn sin = shmap::cpu::unary_kernel(UnaryOp::sin, DType::f32);
  BinaryFn mul = shmap::cpu::binary_kernel(BinaryOp::mul, DType::f32);
  BinaryFn add = shmap::cpu::binary_kernel(BinaryOp::add, DType::f32);
  BinaryFn sub = shmap::cpu::binary_kernel(BinaryOp::sub, DType::f32);
  std::vector<std::vector<float>> x, y;
  const void* ranks[kDevices] = {};
  std::vector<float> sum = std::vector<float>(kElements);
};

Work eager_body() {
  auto loop = std::make_shared<Loop>();
  return {[loop] { loop->call(); }, [loop] { return loop->check(); }, {}};
}

}  // namespace

int main(int argc, char** argv) {
  return shmap::bench::bench_main(argc, argv, "hand_loop", {{"eager_body", {}, eager_body}});
}
