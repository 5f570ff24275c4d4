// The calls of cuBLASLt for products of arrays: candidates are timed once, captured products never,
// batches take as few calls as their strides allow, and nothing is copied that can be read
// directly.
#include <cuda_sim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Lines = std::vector<std::string>;

// The products of these tests are small, and are to be cuBLASLt's all the same; in the processes
// that the tests start, too.
[[maybe_unused]] const int small_products_too = setenv("SHMAP_SMALL_PRODUCTS", "0", 1);

bool is_product(const std::string& line) { return line.starts_with("cublasLtMatmul "); }

// The products that f asks for, and how many copies of boxes ran.
struct Asked {
  Lines products;
  int copies = 0;
};
template <class F>
Asked asked(F f) {
  shmap_sim::record_calls(true);
  f().block_until_ready();
  Asked out;
  for (const std::string& line : shmap_sim::calls())
    if (is_product(line)) out.products.push_back(line);
  for (const std::string& name : shmap_sim::executed())
    out.copies += name.find("copy") != std::string::npos;
  shmap_sim::record_calls(false);
  return out;
}

Array some(Shape shape) {
  const std::int64_t n = shape.num_elements();
  return reshape(arange(n) % 7, shape).block_until_ready();
}

// A cache folder of this test alone.
class OwnCache {
 public:
  OwnCache() {
    const std::string folder = ::testing::TempDir() + "shmap_gemms_" + std::to_string(getpid()) +
                               "_" + std::to_string(++made);
    std::filesystem::remove_all(folder);
    if (const char* now = std::getenv("SHMAP_CACHE_DIR")) before_ = now;
    setenv("SHMAP_CACHE_DIR", folder.c_str(), 1);
    folder_ = folder;
  }
  ~OwnCache() {
    std::filesystem::remove_all(folder_);
    if (before_.empty())
      unsetenv("SHMAP_CACHE_DIR");
    else
      setenv("SHMAP_CACHE_DIR", before_.c_str(), 1);
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      all.push_back(entry.path());
    return all;
  }

 private:
  static inline int made = 0;
  std::filesystem::path folder_;
  std::string before_;
};

// Sizes that no other test has.
TEST(CublasLtCalls, CandidatesAreTimedOnce) {
  const OwnCache cache;
  const Array a = some({17, 31}), b = some({31, 13});
  const auto product = [&] { return matmul(a, b); };
  // There are three candidates, which run twice alone, and in a graph if they may be the fastest;
  // then the product runs.
  const std::size_t first = asked(product).products.size();
  EXPECT_GE(first, 3u * 2 + 2);
  EXPECT_LE(first, 3u * 402 + 1);
  const Lines again = asked(product).products;
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(asked(product).products, again);
}

// A measurement of another process is used if it names an algorithm that the library offers.
TEST(CublasLtCalls, DISABLED_InAnotherProcess) {
  const Array a = some({18, 31}), b = some({31, 13});
  const Lines products = asked([&] { return matmul(a, b); }).products;
  std::printf("%d products, algorithm %c\n", static_cast<int>(products.size()),
              products.back().back());
}
TEST(CublasLtCalls, ChoicesAreKeptOnDisk) {
  const OwnCache cache;
  const auto in_another_process = [] {
    std::FILE* const out = popen(
        "/proc/$PPID/exe --gtest_also_run_disabled_tests "
        "--gtest_filter=CublasLtCalls.DISABLED_InAnotherProcess",
        "r");
    std::string line;
    int products = -1;
    char text[256], algorithm = '?';
    while (std::fgets(text, sizeof text, out) != nullptr)
      std::sscanf(text, "%d products, algorithm %c", &products, &algorithm);
    EXPECT_EQ(pclose(out), 0);
    return std::pair(products, algorithm);
  };
  const auto [first, algorithm] = in_another_process();
  EXPECT_GE(first, 3 * 2 + 2);
  const std::vector<std::filesystem::path> files = cache.files();
  ASSERT_EQ(std::ranges::count(files, ".gemm", [](const auto& f) { return f.extension(); }), 1);
  EXPECT_EQ(in_another_process(), std::pair(1, algorithm));
  // After a changed byte the choice is measured anew.
  for (const std::filesystem::path& file : files) {
    if (file.extension() != ".gemm") continue;
    std::fstream changed(file, std::ios::in | std::ios::out | std::ios::binary);
    changed.seekg(-1, std::ios::end);
    const char last = static_cast<char>(changed.get());
    changed.seekp(-1, std::ios::end);
    changed.put(static_cast<char>(last ^ 1));
  }
  EXPECT_GE(in_another_process().first, 3 * 2 + 2);
  EXPECT_EQ(in_another_process().first, 1);
}

// The choice whether to pad copies is measured once; either way there is one product from then
// on.
TEST(CublasLtCalls, RowsThatLieOddlyMayBePadded) {
  const OwnCache cache;
  const Array a = astype(some({301, 601}), bf16), b = astype(some({601, 301}), bf16);
  const auto product = [&] { return matmul(a, b); };
  const Lines first = asked(product).products;
  const auto is_padded = [](const std::string& line) {
    return line.find(" 304x301x608 ") != std::string::npos;
  };
  const auto with_copies = std::ranges::count_if(first, is_padded);
  EXPECT_GT(with_copies, 0);
  EXPECT_GT(static_cast<std::ptrdiff_t>(first.size()), with_copies);
  const Asked again = asked(product), once_more = asked(product);
  ASSERT_EQ(again.products.size(), 1u);
  EXPECT_EQ(once_more.products, again.products);
  EXPECT_EQ(again.copies, is_padded(again.products[0]) ? 3 : 0);
  // Sums of up to 601 products of up to 36, rounded to bf16.
  const std::vector<float> got = astype(product(), f32).to_vector<float>();
  const std::vector<float> want =
      astype(astype(matmul(astype(a, f32), astype(b, f32)), bf16), f32).to_vector<float>();
  EXPECT_EQ(got, want);
}

TEST(CublasLtCalls, ACapturedProductIsNotTimed) {
  const Array a = some({19, 37}), b = some({37, 11});
  auto f = jit([](Array x, Array y) { return matmul(x, y) + 1; });
  const std::vector<float> wanted = (matmul(a, b) + 1).to_vector<float>();
  EXPECT_EQ(f(a, b).to_vector<float>(), wanted);
  EXPECT_LE(asked([&] { return f(a, b); }).products.size(), 1u);    // captures
  EXPECT_THAT(asked([&] { return f(a, b); }).products, IsEmpty());  // replays
  EXPECT_EQ(f(a, b).to_vector<float>(), wanted);
}

class Untimed : public ::testing::Test {
 protected:
  void SetUp() override { setenv("SHMAP_TIME_GEMMS", "0", 1); }
  void TearDown() override { unsetenv("SHMAP_TIME_GEMMS"); }
};

TEST_F(Untimed, TheFirstAlgorithmIsTaken) {
  const Array a = some({5, 29}), b = some({29, 3});
  EXPECT_THAT(asked([&] { return matmul(a, b); }).products,
              ElementsAre("cublasLtMatmul 3x5x29 batch 1 algorithm 0"));
}

TEST_F(Untimed, TransposedOperandsAreReadWhereTheyLie) {
  const auto dot = [](Shape l, Shape r, std::vector<int> lc, std::vector<int> rc,
                      std::vector<int> lb = {}, std::vector<int> rb = {}) {
    return asked([=] {
      return dot_general(some(l), some(r), {.contracting = {lc, rc}, .batch = {lb, rb}});
    });
  };
  const Asked transposed = dot({23, 5}, {3, 23}, {0}, {1});
  EXPECT_THAT(transposed.products, ElementsAre("cublasLtMatmul 3x5x23 batch 1 algorithm 0"));
  // [b, q, h, d] and [b, k, h, d]: h is inside of q, so b is a call each, of h products.
  const Asked heads = dot({2, 5, 4, 7}, {2, 3, 4, 7}, {3}, {3}, {0, 2}, {0, 2});
  EXPECT_THAT(heads.products, ElementsAre("cublasLtMatmul 3x5x7 batch 4 algorithm 0",
                                          "cublasLtMatmul 3x5x7 batch 4 algorithm 0"));
  const Asked batches = dot({2, 4, 5, 7}, {2, 4, 7, 3}, {3}, {2}, {0, 1}, {0, 1});
  EXPECT_THAT(batches.products, ElementsAre("cublasLtMatmul 3x5x7 batch 8 algorithm 0"));
}

TEST_F(Untimed, Tf32IsAskedFor) {
  // 1 + 2^-12 is no TF32 number.
  const float x = 1 + 1.f / 4096;
  const Array a = full({3, 1}, x), b = full({1, 2}, 1.f);
  EXPECT_EQ(matmul(a, b).to_vector<float>(), std::vector<float>(6, x));
  setenv("SHMAP_TF32", "1", 1);
  EXPECT_EQ(matmul(a, b).to_vector<float>(), std::vector<float>(6, 1.f));
  unsetenv("SHMAP_TF32");
}

TEST_F(Untimed, ARefusalNamesTheProduct) {
  shmap_sim::inject("cublasLtMatmul", cudaErrorUnknown);
  const Array a = some({9, 41}), b = some({41, 2});
  test::expect_error<DeviceError>([&] { matmul(a, b).block_until_ready(); },
                                  {"cublasLtMatmul", "f32[9,41]", "f32[41,2]", "dot_general"});
  EXPECT_EQ(matmul(a, b).shape(), (Shape{9, 2}));
}

}  // namespace
}  // namespace shmap
