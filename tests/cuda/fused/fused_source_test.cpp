// The sources of fused kernels: their text, and that NVIDIA's compiler accepts them if it is
// installed. No GPU is needed.
#include "cuda/fused/fused_source.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "cuda/fused/fused_stages.h"
#include "cuda/fused/kernel_image.h"
#include "shmap/error.h"
#include "tests/cuda/fused/fused_programs.h"

namespace shmap::cuda {
namespace {

using namespace testing;

// Compares with the file, or writes it if SHMAP_TEST_WRITE_GOLDEN is set.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = SHMAP_GOLDEN_DIR "/fused/" + name;
  if (std::getenv("SHMAP_TEST_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(in), {}));
}

TEST(FusedSource, AMapIsOneLoopOverVectors) {
  const FusedSource source = make_fused_source(*map_program(1000003), true);
  EXPECT_EQ(source.form, FusedForm::flat);
  EXPECT_EQ(source.vector, 4);
  EXPECT_EQ(source.count, 1000003);
  EXPECT_EQ(source.operand_alignment, (std::vector<int>{16, 16, 4}));
  EXPECT_EQ(source.scalars, (std::vector<bool>{false, false, true}));
  EXPECT_EQ(source.result_alignment, (std::vector<int>{16}));
  expect_golden("map.txt", source.text);
}

TEST(FusedSource, SoftmaxReadsAndWritesMemoryOnce) {
  const FusedSource source = make_fused_source(*softmax_program(128, 512), true);
  EXPECT_EQ(source.form, FusedForm::rows);
  EXPECT_EQ(source.lanes, 32);
  EXPECT_TRUE(source.resident);
  expect_golden("softmax.txt", source.text);
}

TEST(FusedSource, MapsOfAllSizesAreOneSource) {
  EXPECT_EQ(make_fused_source(*map_program(64), true).text,
            make_fused_source(*map_program(12345), true).text);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(FusedSource, RowsOf32KilobytesStayInRegisters) {
  for (const std::int64_t cols : {1, 3, 10, 64, 1000, 1024, 4096, 8192}) {
    const FusedSource source = make_fused_source(*softmax_program(7, cols), true);
    EXPECT_TRUE(source.resident) << cols;
    EXPECT_EQ(count(source.text, "load<kVector>(args.in"), 1u) << cols;
    EXPECT_LE(source.threads, 1024);
    EXPECT_EQ(source.threads % 32, 0);
  }
  const FusedSource longer = make_fused_source(*softmax_program(7, 65536), true);
  EXPECT_FALSE(longer.resident);
  EXPECT_EQ(count(longer.text, "load<kVector>(args.in"), 3u);
}

TEST(FusedSource, VectorsAreAsWideAsColumnsAllow) {
  EXPECT_EQ(make_fused_source(*softmax_program(7, 8192), true).vector, 4);
  EXPECT_EQ(make_fused_source(*softmax_program(7, 8194), true).vector, 2);
  EXPECT_EQ(make_fused_source(*softmax_program(7, 8191), true).vector, 1);
  EXPECT_EQ(make_fused_source(*softmax_program(7, 8192), false).vector, 1);
  EXPECT_EQ(make_fused_source(*layer_norm_program(7, 8192), true).vector, 8);
}

using Operands = std::vector<std::uint32_t>;  // bits, for each result

// A result of rows has as many bytes as an operand of columns, which every row reads.
TEST(FusedSource, OnlyOperandsWithTheElementsOfTheResultAreOverwritten) {
  FusedProgram p(8, 8);
  const int x = p.add_input(f32, FusedKind::full), scale = p.add_input(f32, FusedKind::col),
            shift = p.add_input(f32, FusedKind::row);
  const int scaled = p.add_map(mul_p, {x, scale});
  p.add_output(p.add_map(add_p, {p.add_reduce(reduce_sum_p, scaled), shift}),
               ShapedArray({8}, f32));
  p.add_output(p.add_map(neg_p, {scaled}), ShapedArray({8, 8}, f32));
  EXPECT_EQ(FusedStages(p).overwrites(), (Operands{0b100, 0b001}));
}

// An operand whose rows repeat is read where it lies, and is no memory for a result: other rows
// read it too.
TEST(FusedSource, RowsThatRepeat) {
  FusedProgram p(12, 8);
  const int x = p.add_repeated(f32, FusedKind::full, {4, 3}),
            y = p.add_repeated(f32, FusedKind::full, {2, 2}),
            z = p.add_repeated(f32, FusedKind::row, {1, 4}), w = p.add_input(f32, FusedKind::full);
  const int sum = p.add_map(add_p, {p.add_map(mul_p, {x, y}), p.add_map(mul_p, {w, z})});
  p.add_output(sum, ShapedArray({12, 8}, f32));
  EXPECT_EQ(FusedStages(p).overwrites(), (Operands{0b1000}));
  const FusedSource source = make_fused_source(p, true);
  EXPECT_EQ(source.form, FusedForm::cells);
  EXPECT_EQ(source.vector, 4);
  EXPECT_EQ(count(source.text, "load<kVector>(args.in0 + (row / 4) * kCols + col)"), 1u);
  EXPECT_EQ(count(source.text, "load<kVector>(args.in1 + (row / 2 % 2) * kCols + col)"), 1u);
  EXPECT_EQ(count(source.text, "args.in2[row % 4]"), 1u);
}

// A result that is written before the loop that first loads the operand.
TEST(FusedSource, AnOperandReadAfterTheResultIsNotOverwritten) {
  FusedProgram p(8, 512);
  const int x = p.add_input(f32, FusedKind::full), y = p.add_input(f32, FusedKind::full);
  const int e = p.add_map(exp_p, {x});
  const int shifted = p.add_map(add_p, {p.add_map(sub_p, {y, p.add_reduce(reduce_max_p, e)}), x});
  p.add_output(e, ShapedArray({8, 512}, f32));
  p.add_output(shifted, ShapedArray({8, 512}, f32));
  EXPECT_EQ(FusedStages(p).overwrites(), (Operands{0b01, 0b11}));
}

// Maps, or a sum of each row, of more columns than an int holds.
FusedSource wide_source(bool reduces) {
  constexpr std::int64_t kRows = 2, kCols = 3'000'000'000;
  FusedProgram p(kRows, kCols);
  const int x = p.add_input(f32, FusedKind::full), y = p.add_input(f32, FusedKind::row);
  const int product = p.add_map(mul_p, {x, y});
  if (reduces)
    p.add_output(p.add_reduce(reduce_sum_p, product), {Shape{kRows}, f32, false, AxisSet()});
  else
    p.add_output(product, {Shape{kRows, kCols}, f32, false, AxisSet()});
  return make_fused_source(p, true);
}

TEST(FusedSource, ColumnsMayBeMoreThanAnIntHolds) {
  for (const bool reduces : {false, true}) {
    const FusedSource source = wide_source(reduces);
    EXPECT_EQ(source.form, reduces ? FusedForm::rows : FusedForm::cells);
    EXPECT_EQ(count(source.text, "constexpr long kCols{3000000000};"), 1u);
    EXPECT_EQ(count(source.text, "int col"), 0u);
  }
}

TEST(FusedSource, NothingToDoHasNoBlocks) {
  EXPECT_EQ(make_fused_source(*map_program(0), true).blocks, 0);
  EXPECT_EQ(make_fused_source(*softmax_program(0, 5), true).blocks, 0);
}

// The compiler of a toolkit, also where a stand-in has its name.
class RealNvrtc : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const char* name :
         {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
      if (dlopen(name, RTLD_NOW | RTLD_LOCAL) == nullptr) continue;
      found_ = name;
      break;
    }
    if (found_ != nullptr) setenv("SHMAP_NVRTC_PATH", found_, 1);
    setenv("SHMAP_CACHE_DIR", "off", 1);
  }
  void SetUp() override {
    if (found_ == nullptr) GTEST_SKIP() << "libnvrtc is not installed";
  }
  static inline const char* found_ = nullptr;
};

TEST_F(RealNvrtc, CompilesRows) {
  ASSERT_EQ(architecture(9, 0), "sm_90");
  for (const auto& p :
       {softmax_program(128, 10), softmax_program(128, 1024), softmax_program(7, 65536),
        softmax_program(5, 48, f16), layer_norm_program(64, 1024), map_program(77)}) {
    for (const bool aligned : {true, false})
      EXPECT_GT(compile_kernel(make_fused_source(*p, aligned).text, "sm_90").size(), 1000u)
          << p->text();
  }
  for (const bool reduces : {true, false})
    EXPECT_GT(compile_kernel(wide_source(reduces).text, "sm_90").size(), 1000u);
}

// In the forms cells and rows, in rows that one thread, a warp or a block reduces.
TEST_F(RealNvrtc, CompilesRowsThatRepeat) {
  for (const std::int64_t cols : {3, 64, 1000, 70000}) {
    for (const bool reduces : {true, false}) {
      FusedProgram p(12, cols);
      const int x = p.add_repeated(f32, FusedKind::full, {4, 3}),
                y = p.add_repeated(f32, FusedKind::full, {1, 4}),
                z = p.add_repeated(f32, FusedKind::row, {2, 2});
      const int product = p.add_map(mul_p, {p.add_map(sub_p, {x, y}), z});
      if (reduces)
        p.add_output(p.add_reduce(reduce_sum_p, product), ShapedArray({12}, f32));
      else
        p.add_output(product, ShapedArray({12, cols}, f32));
      for (const bool aligned : {true, false})
        EXPECT_GT(compile_kernel(make_fused_source(p, aligned).text, "sm_90").size(), 1000u)
            << p.text();
    }
  }
}

TEST_F(RealNvrtc, CompilesEveryPrimitiveOfEveryDType) {
  for (const DType dtype : kFusedDTypes) {
    EXPECT_GT(compile_kernel(make_fused_source(*every_map_program(dtype, 64), false).text, "sm_90")
                  .size(),
              1000u)
        << dtype;
  }
}

TEST_F(RealNvrtc, CompilesForOlderThanTheGpu) {
  const std::string arch = architecture(99, 0);
  EXPECT_TRUE(arch.starts_with("compute_")) << arch;
  EXPECT_NE(compile_kernel(make_fused_source(*map_program(9), true).text, arch).find(".target"),
            std::string::npos);
}

TEST_F(RealNvrtc, ASourceThatDoesNotCompileIsShownWithTheLog) {
  try {
    compile_kernel("extern \"C\" __global__ void k() { nonsense(); }", "sm_90");
    FAIL() << "it compiled";
  } catch (const DeviceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("identifier \"nonsense\" is undefined"), std::string::npos) << text;
    EXPECT_NE(text.find("void k() { nonsense(); }"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace shmap::cuda
