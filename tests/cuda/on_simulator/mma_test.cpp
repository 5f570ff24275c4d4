// Tiles of 16-bit floats (cuda/kernels/attention/mma.h) in the layout that its header gives,
// against plain products, and copies that run while a thread goes on.
#include "cuda/kernels/attention/mma.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "cuda/kernels/attention/async_copy.h"
#include "cuda_sim.h"

namespace shmap::cuda {
namespace {

class Mma : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SHMAP_SIM_GPUS", "1", 1);
    shmap_sim::reset();
  }
};

// Device memory with these elements.
template <class T>
T* upload(const std::vector<T>& from) {
  void* address = nullptr;
  EXPECT_EQ(cudaMalloc(&address, from.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(address, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
            cudaSuccess);
  return static_cast<T*>(address);
}
template <class T>
std::vector<T> download(const T* from, std::size_t n) {
  std::vector<T> result(n);
  EXPECT_EQ(cudaMemcpy(result.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  return result;
}
template <class... E, class... A>
void run(int threads, void (*kernel)(E...), A... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = static_cast<unsigned>(threads);
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, args...), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Small whole numbers, whose products and sums are exact.
template <class T>
std::vector<T> numbers(int n, int seed) {
  std::vector<T> result;
  for (int i = 0; i < n; ++i)
    result.push_back(scalar::narrow<T>(static_cast<float>((i * 7 + seed * 5 + i / 16) % 17 - 8)));
  return result;
}

__device__ std::uint32_t word_of(unsigned short low, unsigned short high) {
  return low | static_cast<std::uint32_t>(high) << 16;
}

// c += a b for each warp, a 16 × 16, b 16 × 8 by rows, every lane finding its parts as the header
// says.
template <class T>
__global__ void multiply_by_layout(const T* a, const T* b, float* c) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  a += warp * 256;
  b += warp * 128;
  c += warp * 128;
  const auto a_word = [&](int r, int k) {
    return word_of(a[r * 16 + k].bits, a[r * 16 + k + 1].bits);
  };
  const auto b_word = [&](int k, int n) {
    return word_of(b[k * 8 + n].bits, b[k * 8 + 8 + n].bits);
  };
  TileC sum;
  float* const places[] = {&c[g * 8 + 2 * t], &c[g * 8 + 2 * t + 1], &c[(g + 8) * 8 + 2 * t],
                           &c[(g + 8) * 8 + 2 * t + 1]};
  for (int i = 0; i < 4; ++i) sum.value[i] = *places[i];
  multiply_add<T>(sum,
                  TileA{{a_word(g, 2 * t), a_word(g + 8, 2 * t), a_word(g, 2 * t + 8),
                         a_word(g + 8, 2 * t + 8)}},
                  TileB{{b_word(2 * t, g), b_word(2 * t + 8, g)}});
  for (int i = 0; i < 4; ++i) *places[i] = sum.value[i];
}

template <class T>
void expect_products() {
  constexpr int kWarps = 3;
  const std::vector<T> a = numbers<T>(256 * kWarps, 1), b = numbers<T>(128 * kWarps, 2);
  std::vector<float> c(128 * kWarps);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i);
  float* const device_c = upload(c);
  run(32 * kWarps, multiply_by_layout<T>, static_cast<const T*>(upload(a)),
      static_cast<const T*>(upload(b)), device_c);
  const std::vector<float> got = download(device_c, c.size());
  for (int warp = 0; warp < kWarps; ++warp)
    for (int r = 0; r < 16; ++r)
      for (int n = 0; n < 8; ++n) {
        const int at = warp * 128 + r * 8 + n;
        float want = c[static_cast<std::size_t>(at)];
        for (int k = 0; k < 16; ++k)
          want += scalar::widen(a[static_cast<std::size_t>(warp * 256 + r * 16 + k)]) *
                  scalar::widen(b[static_cast<std::size_t>(warp * 128 + k * 8 + n)]);
        ASSERT_EQ(got[static_cast<std::size_t>(at)], want) << warp << ' ' << r << ' ' << n;
      }
}

TEST_F(Mma, MultipliesInTheLayoutOfItsHeader) {
  expect_products<F16>();
  expect_products<Bf16>();
}

// Four tiles, the rows of tile i from 8i on: every word of every lane, [lane][word].
__global__ void load(const std::uint16_t* rows, std::uint32_t* words, bool transposed) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t own[4];
  if (transposed)
    load_tiles_transposed(own, rows + lane * 8);
  else
    load_tiles(own, rows + lane * 8);
  for (int i = 0; i < 4; ++i) words[lane * 4 + i] = own[i];
}

TEST_F(Mma, LoadsTiles) {
  std::vector<std::uint16_t> rows(256);  // [tile][row][column]
  for (int i = 0; i < 256; ++i) rows[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(i);
  const std::uint16_t* const device_rows = upload(rows);
  std::uint32_t* const device_words = upload(std::vector<std::uint32_t>(128));
  for (const bool transposed : {false, true}) {
    run(32, load, device_rows, device_words, transposed);
    const std::vector<std::uint32_t> got = download(device_words, 128);
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned g = lane / 4, t = lane % 4;
        const unsigned low = 64 * i + (transposed ? 16 * t + g : 8 * g + 2 * t);
        ASSERT_EQ(got[lane * 4 + i], low | (low + (transposed ? 8 : 1)) << 16) << lane << ' ' << i;
      }
  }
}

// Each thread copies 16 bytes and reads those of its neighbour.
__global__ void copy_and_read(const std::uint32_t* from, std::uint32_t* to, bool waits) {
  __shared__ uint4 place[32];
  const int lane = static_cast<int>(threadIdx.x);
  place[lane] = uint4{9, 9, 9, 9};
  AsyncCopies copies;
  copies.copy16(&place[lane], from + lane * 4, lane % 2 == 0);
  if (waits) copies.wait();
  __syncthreads();
  to[lane] = place[lane ^ 1].y;
}

TEST_F(Mma, CopiesAreThereAfterTheWait) {
  std::vector<std::uint32_t> from(128);
  for (std::uint32_t i = 0; i < 128; ++i) from[i] = 1000 + i;
  const std::uint32_t* const device_from = upload(from);
  std::uint32_t* const device_to = upload(std::vector<std::uint32_t>(32));
  run(32, copy_and_read, device_from, device_to, true);
  std::vector<std::uint32_t> got = download(device_to, 32);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], i % 2 == 0 ? 0 : 1000 + 4 * (i - 1) + 1);
  run(32, copy_and_read, device_from, device_to, false);
  got = download(device_to, 32);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], 9u);
}

TEST_F(Mma, RoundsPairsToNearestEven) {
  EXPECT_EQ(round_pair<F16>(1.0f, -2.0f), 0xc0003c00u);
  EXPECT_EQ(round_pair<Bf16>(1.0f, -2.0f), 0xc0003f80u);
  EXPECT_EQ(round_pair<Bf16>(1.00390625f, 1.01171875f), 0x3f823f80u);  // ties
}

}  // namespace
}  // namespace shmap::cuda
