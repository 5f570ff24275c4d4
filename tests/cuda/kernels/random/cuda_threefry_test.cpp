// Random bits by CUDA kernels, compared with the CPU's kernels.
#include <cstring>

#include "core/cpu/kernels/random/threefry.h"
#include "core/ops/random.h"
#include "cuda/kernels/random/threefry.h"
#include "tests/cuda/kernels/device_memory.h"

namespace shmap::cuda {
namespace {

using testing::DeviceBytes;
using testing::on_stream;
using Bytes = std::vector<std::uint8_t>;

class CudaThreefry : public testing::OnGpu {};

constexpr std::uint32_t kKeys[] = {0x13198a2e, 0x03707344, 1, 2, 0xffffffff, 0};

template <class T, std::size_t n>
Bytes bytes_of(const T (&values)[n]) {
  Bytes out(sizeof values);
  std::memcpy(out.data(), values, sizeof values);
  return out;
}

// Rows of 3 elements, which threads compute one by one, and of 8, of which each computes four; the
// latter also where the result does not lie at a multiple of four elements.
TEST_F(CudaThreefry, FillsAsTheCpu) {
  const DeviceBytes keys(bytes_of(kKeys));
  const std::int64_t firsts[] = {0xfffffff0, 5, 0x300000000};
  const DeviceBytes first(bytes_of(firsts));
  struct Form {
    Shape shape, of;
    std::int64_t offset;
  };
  for (const Form& form :
       {Form{{4, 3}, {9, 7}, 0}, Form{{3, 8}, {9, 16}, 0}, Form{{3, 8}, {9, 16}, 1}}) {
    for (const DType dtype : {u8, u16, u32, u64, prng_key}) {
      for (bool is_block : {false, true}) {
        const RandomBlock block(form.shape, is_block ? form.of : Shape());
        RandomFill fill;
        fill.dtype = dtype;
        fill.keys = 3;
        fill.size = form.shape.num_elements();
        fill.rank = block.rank;
        for (int d = 0; d < block.rank; ++d) {
          fill.extent[d] = block.extent[d];
          fill.stride[d] = block.stride[d];
        }
        fill.key = {keys.data(), Operand::whole};
        if (is_block) fill.first = {first.data(), Operand::whole};
        const std::int64_t item = itemsize(dtype), before = form.offset * item;
        const DeviceBytes out(before + fill.keys * fill.size * item);
        fill.out = static_cast<std::byte*>(out.data()) + before;
        on_stream([&](void* stream) { random_fill(fill, stream); });
        Bytes want = out.read<std::uint8_t>();
        for (std::int64_t k = 0; k < fill.keys; ++k) {
          for (std::int64_t i = 0; i < fill.size; ++i) {
            const std::int64_t count = block.index(i) + (is_block ? firsts[k] : 0);
            cpu::threefry_bits(dtype, kKeys + 2 * k, static_cast<std::uint64_t>(count),
                               want.data() + before + (k * fill.size + i) * item, 1);
          }
        }
        EXPECT_EQ(out.read<std::uint8_t>(), want)
            << short_name(dtype) << " " << is_block << ", from element " << form.offset;
      }
    }
  }
}

TEST_F(CudaThreefry, FoldsInAndHashesAsTheCpu) {
  const DeviceBytes keys(bytes_of(kKeys)), out(24), a(12), b(12);
  const std::uint32_t data[] = {7, 8, 9};
  const DeviceBytes on_device(bytes_of(data));
  on_stream([&](void* stream) {
    random_fold_in({keys.data(), Operand::whole}, {on_device.data(), Operand::whole}, out.data(), 3,
                   stream);
    threefry_pairs({&kKeys[0], Operand::literal}, {&kKeys[1], Operand::literal},
                   {&kKeys[5], Operand::literal}, {on_device.data(), Operand::whole}, a.data(),
                   b.data(), 3, stream);
  });
  std::vector<std::uint32_t> folded(6), x(3), y(3);
  for (std::size_t i = 0; i < 3; ++i)
    cpu::threefry_bits(DType::prng_key, kKeys + 2 * i, data[i], &folded[2 * i], 1);
  cpu::threefry_pairs(&kKeys[0], &kKeys[1], &kKeys[5], data, 7, x.data(), y.data(), 3);
  EXPECT_EQ(out.read<std::uint32_t>(), folded);
  EXPECT_EQ(a.read<std::uint32_t>(), x);
  EXPECT_EQ(b.read<std::uint32_t>(), y);
}

}  // namespace
}  // namespace shmap::cuda
