// Transposes of mapped functions communicate no more than they must (JEP 17111's examples): in
// texts, in values, and counted.
#include <gtest/gtest.h>

#include <algorithm>

#include "shmap/shmap.h"
#include "tests/support/leaves.h"

namespace shmap {
namespace {

using testing::LeafFunction;
using testing::Leaves;
using testing::transposed;

Mesh mesh8() { return make_mesh({8}, {"i"}); }

LeafFunction mapped(std::function<Array(Array)> body, P in, P out, ShardMapOptions options = {}) {
  return [=](Leaves x) -> Leaves {
    return {shard_map([body](Array b) { return body(b); }, mesh8(), in, out, options)(x[0])};
  };
}

std::string text_of(const LeafFunction& f, const ShapedArray& type) {
  return to_string(make_jaxpr([&](Array x) { return f({x})[0]; })(type));
}

TEST(TransposeShardMap, FanInNeedsNoCommunication) {
  const LeafFunction f1 = mapped([](Array x) { return psum(x, "i"); }, P("i"), P());
  const ShapedArray x({8}, f32), y({1}, f32);
  const LeafFunction t = transposed(f1, {x});
  EXPECT_EQ(text_of(t, y),
            "{ lambda a:f32[1] .\n"
            "  let b:f32[8] = shard_map[check_vma=True\n"
            "                           in_specs=(P(),)\n"
            "                           jaxpr={ lambda a:f32[1] .\n"
            "                                   let b:f32[1]{i} = pbroadcast[axes=('i',)] a\n"
            "                                   in ( b ) }\n"
            "                           mesh=Mesh('i': 8)\n"
            "                           out_specs=(P('i'),)] a\n"
            "  in ( b ) }");
  EXPECT_EQ(text_of(transposed(t, {y}), x), text_of(f1, x));
  EXPECT_EQ(t({full({1}, 3.f)})[0].to_vector<float>(), std::vector<float>(8, 3));
}

TEST(TransposeShardMap, CursedIdentityStaysEmpty) {
  const LeafFunction f = mapped([](Array x) { return x; }, P(), P());
  const ShapedArray x({3}, f32);
  LeafFunction t = f;
  for (int n = 0; n < 4; ++n) {
    t = transposed(t, {x});
    EXPECT_EQ(text_of(t, x), text_of(f, x));
  }
  EXPECT_EQ(t({arange(3)})[0].to_vector<float>(), (std::vector<float>{0, 1, 2}));
}

TEST(TransposeShardMap, GatherToAnUnmappedResultTransposesToASlice) {
  const LeafFunction f4 =
      mapped([](Array x) { return all_gather_invariant(x, "i", {.tiled = true}); }, P("i"), P());
  const ShapedArray x({8}, f32);
  const LeafFunction t = transposed(f4, {x});
  const std::string text = text_of(t, x);
  EXPECT_NE(text.find("b:f32[1]{i} = pscatter["), std::string::npos) << text;
  EXPECT_EQ(text_of(transposed(t, {x}), x), text_of(f4, x));
}

TEST(TransposeShardMap, AResultThatIsMappedWithoutNeedIsSummed) {
  const LeafFunction f = mapped([](Array x) { return psum(x, "i"); }, P("i"), P("i"));
  const ShapedArray x({8}, f32);
  const std::string text = text_of(transposed(f, {x}), x);
  const std::size_t sum = text.find("b:f32[1] = psum[axes=('i',)] a");
  ASSERT_NE(sum, std::string::npos) << text;
  EXPECT_NE(text.find("c:f32[1]{i} = pbroadcast[axes=('i',)] b", sum), std::string::npos) << text;
}

TEST(TransposeShardMap, FanOutSumsOnce) {
  const LeafFunction f = mapped([](Array x) { return pbroadcast(x, "i"); }, P(), P("i"));
  const LeafFunction t = transposed(f, {ShapedArray({1}, f32)});
  reset_counters();
  EXPECT_EQ(t({arange(8)})[0].to_vector<float>(), std::vector<float>{28});
  EXPECT_EQ(counters().collectives, 1);
}

// A parameter that is repeated to the size of the batch is summed over devices at its own size.
TEST(TransposeShardMap, CotangentsAreSummedAtTheSizeOfTheParameter) {
  const auto loss = shard_map(
      [](Array w, Array b, Array s, Array x) {
        const Array y = matmul(x, w);
        return pmean(mean(square(where(y > 0, b, y + b) * b + s)), "i");
      },
      mesh8(), {P(), P(), P(), P("i")}, P());
  const auto types = [](Shape s) { return ShapedArray(s, f32); };
  const ClosedJaxpr jaxpr =
      make_jaxpr(grad<0, 1, 2>(loss))(types({16, 32}), types({32}), types({}), types({64, 16}));
  std::vector<std::int64_t> bytes;
  for (const CollectiveCost& c : cost_analysis(jaxpr).collectives) {
    EXPECT_EQ(c.primitive, "psum");
    bytes.push_back(c.bytes);
  }
  std::sort(bytes.begin(), bytes.end());
  // The loss, s, b and w: each once.
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{4, 4, 32 * 4, 16 * 32 * 4}));
}

// As in pmap: the same numbers with more communication.
TEST(TransposeShardMap, WithoutVarianceCotangentsAreSharedOutAndSummed) {
  const ShardMapOptions legacy{.check_vma = false};
  const LeafFunction f1 = mapped([](Array x) { return psum(x, "i"); }, P("i"), P(), legacy);
  const LeafFunction t = transposed(f1, {ShapedArray({8}, f32)});
  reset_counters();
  EXPECT_EQ(t({full({1}, 3.f)})[0].to_vector<float>(), std::vector<float>(8, 3));
  EXPECT_EQ(counters().collectives, 1);
  const std::string text = text_of(t, ShapedArray({1}, f32));
  EXPECT_NE(text.find("= div a 8.0"), std::string::npos) << text;
  EXPECT_NE(text.find("psum["), std::string::npos) << text;

  const LeafFunction cursed = mapped([](Array x) { return x; }, P(), P(), legacy);
  const LeafFunction twice =
      transposed(transposed(cursed, {ShapedArray({3}, f32)}), {ShapedArray({3}, f32)});
  reset_counters();
  EXPECT_EQ(twice({arange(3)})[0].to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(counters().collectives, 2);
}

}  // namespace
}  // namespace shmap
