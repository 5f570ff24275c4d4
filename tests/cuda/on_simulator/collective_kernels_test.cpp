// The number of kernels of a gather, an exchange, a sum or a scattered sum of eight devices on one
// GPU: one kernel with a table of the pieces' addresses, and not a copy for each piece.
#include <cuda_sim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <string>
#include <vector>

namespace shmap {
namespace {

using ::testing::SizeIs;

constexpr int kRanks = 8;

// The kernels that run on the GPU for f of blocks of x.
template <class F>
std::vector<std::string> kernels_of(F f, const Array& x) {
  const Mesh mesh = make_mesh({kRanks}, "i");
  const auto mapped = shard_map(f, mesh, P("i"), P("i"), {.check_vma = false});
  const Array blocks = device_put(x, NamedSharding(mesh, P("i"))).block_until_ready();
  shmap_sim::record_calls(true);
  mapped(blocks).block_until_ready();
  const std::vector<std::string> names = shmap_sim::executed();
  shmap_sim::record_calls(false);
  return names;
}

TEST(CollectiveKernels, OneForAllPieces) {
  const Array x = reshape(arange(kRanks * 16 * 3), {kRanks * 16, 3});
  EXPECT_THAT(kernels_of([](Array b) { return all_to_all(b, "i", 0, 0, {.tiled = true}); }, x),
              SizeIs(1));
  EXPECT_THAT(kernels_of([](Array b) { return all_to_all(b, "i", 0, 1, {.tiled = true}); }, x),
              SizeIs(1));
  EXPECT_THAT(kernels_of([](Array b) { return all_gather(b, "i", {.axis = 1, .tiled = true}); }, x),
              SizeIs(1));
  EXPECT_THAT(kernels_of([](Array b) { return psum(b, "i"); }, x), SizeIs(1));
  const auto scatter_dim = [](int dim) {
    return
        [dim](Array b) { return psum_scatter(b, "i", {.scatter_dimension = dim, .tiled = true}); };
  };
  EXPECT_THAT(kernels_of(scatter_dim(0), x), SizeIs(1));
  EXPECT_THAT(kernels_of(scatter_dim(1), reshape(x, {kRanks * 6, 8})), SizeIs(1));
}

}  // namespace
}  // namespace shmap
