// shmap-test: devices
// Arrays whose blocks a function of the program writes.
#include "shmap/make_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <set>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

TEST(MakeArray, AsksForTheBlocksOfASharding) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  for (const P& spec : {P("i", "j"), P("j", "i"), P(axes("i", "j")), P(none, "j"), P()}) {
    int asked = 0;
    std::set<std::pair<std::int64_t, std::int64_t>> corners;
    const Array x = make_array_from_callback<float>(
        {8, 16}, NamedSharding(mesh, spec),
        [&](std::span<const Slice> index, std::span<float> block) {
          ++asked;
          corners.emplace(index[0].start, index[1].start);
          std::size_t k = 0;
          for (std::int64_t r = index[0].start; r < index[0].stop; ++r)
            for (std::int64_t c = index[1].start; c < index[1].stop; ++c)
              block[k++] = static_cast<float>(16 * r + c);
          EXPECT_EQ(k, block.size());
        });
    std::set<std::pair<std::int64_t, std::int64_t>> wanted;
    for (const Shard& shard : x.addressable_shards())
      wanted.emplace(shard.index[0].start, shard.index[1].start);
    EXPECT_EQ(corners, wanted) << to_string(spec);
    EXPECT_LE(asked, 8) << to_string(spec);
    EXPECT_EQ(x.to_vector<float>(), reshape(arange(8.f * 16.f), {8, 16}).to_vector<float>())
        << to_string(spec);
    EXPECT_EQ(to_string(x.sharding().spec()), to_string(spec));
  }
}

TEST(MakeArray, OfEveryWidth) {
  const NamedSharding rows(make_mesh({8}, {"i"}), P("i"));
  const auto fill = [](std::span<const Slice> index, auto block) {
    block[0] = static_cast<std::remove_reference_t<decltype(block[0])>>(index[0].start % 2 == 1);
  };
  EXPECT_EQ(sum(make_array_from_callback<bool>({8}, rows, fill)).item<std::int32_t>(), 4);
  EXPECT_EQ(sum(make_array_from_callback<std::uint8_t>({8}, rows, fill)).item<std::uint8_t>(), 4);
  EXPECT_EQ(sum(make_array_from_callback<double>({8}, rows, fill)).item<double>(), 4.0);
}

TEST(MakeArray, EmptyArraysAskForNothing) {
  const NamedSharding rows(make_mesh({8}, {"i"}), P("i"));
  const Array x = make_array_from_callback<float>(
      {0, 3}, rows, [](std::span<const Slice>, std::span<float>) { FAIL(); });
  EXPECT_EQ(to_string(x.shape()), "(0, 3)");
}

TEST(MakeArray, BadInput) {
  const NamedSharding rows(make_mesh({8}, {"i"}), P("i"));
  const auto nothing = [](std::span<const Slice>, std::span<float>) {};
  EXPECT_THAT([&] { make_array_from_callback<float>({9}, rows, nothing); },
              testing::ThrowsMessage<ValueError>(
                  testing::AllOf(testing::HasSubstr("make_array_from_callback"),
                                 testing::HasSubstr("9"), testing::HasSubstr("make_array_test"))));
  EXPECT_THAT([&] { make_array_from_callback<float>({8}, rows, nullptr); },
              testing::ThrowsMessage<ValueError>(testing::HasSubstr("an empty function")));
  // An exception of the function is the caller's, and the library goes on.
  EXPECT_THROW(make_array_from_callback<float>({8}, rows,
                                               [](std::span<const Slice>, std::span<float>) {
                                                 throw std::runtime_error("no data");
                                               }),
               std::runtime_error);
  EXPECT_EQ(ones({3}).to_vector<float>()[0], 1.f);
}

}  // namespace
}  // namespace shmap
