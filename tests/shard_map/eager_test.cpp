// shmap-test: devices
// A body runs eagerly: the values that it sees, the data that is moved, printing, host control
// flow. Bodies that only compute give the same under jit.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <functional>
#include <sstream>

#include "tests/support/under_jit.h"

namespace shmap {
namespace {

Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }
Array iota_f32(Shape shape) { return reshape(arange(shape.num_elements()), shape); }
Array identity(Array x) { return x; }

// shard_map of what does nothing but compute: the same under jit, captured and replayed.
template <class F>
auto mapped(F f, const Mesh& mesh, Specs in, Specs out, ShardMapOptions options = {}) {
  return [g = shard_map(f, mesh, in, out, options)](const auto&... args) {
    return test::expect_same_under_jit(g, test::Communication::same, args...);
  };
}

TEST(Inputs, AreSplitAsConcatenationIsUndone) {
  const Mesh m = make_mesh({4}, "i");
  const Array y = iota_f32({8, 5});
  Shape seen;
  const auto f = [&](Array block) {
    seen = block.shape();
    return concatenate({block, block, block}, 0) * 2;
  };
  const Array got = mapped(f, m, P("i"), P("i"))(y);
  EXPECT_EQ(seen, (Shape{2, 5}));
  std::vector<Array> parts;
  for (const Array& block : split(y, 4)) parts.push_back(concatenate({block, block, block}, 0) * 2);
  EXPECT_EQ(got.to_vector<float>(), concatenate(parts, 0).to_vector<float>());
}

TEST(Inputs, SpecOfABatchGivesBlocksWithoutReshapes) {
  Shape seen;
  mapped(
      [&](Array x) {
        seen = x.shape();
        return x;
      },
      make_mesh({8}, "i"), P("i"), P("i"))(zeros({128, 3}));
  EXPECT_EQ(seen, (Shape{16, 3}));
}

TEST(Inputs, InPlaceAreNotCopied) {
  const Array x = device_put(iota_f32({8, 6}), NamedSharding(mesh42(), P("i", "j")));
  x.block_until_ready();
  reset_counters();
  const Array y = shard_map(identity, mesh42(), P("i", "j"), P("i", "j"))(x);
  const Counters c = counters();
  EXPECT_EQ(c.copies, 0);
  EXPECT_EQ(c.copied_bytes, 0);
  EXPECT_EQ(c.allocations, 0);
  EXPECT_EQ(c.kernel_launches, 0);
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
}

TEST(Outputs, NeverMove) {
  const Array x = device_put(iota_f32({8, 8}), NamedSharding(mesh42(), P("i", "j")));
  for (const P& out : {P("i", "j"), P("j", "i"), P(axes("i", "j")), P(axes("j", "i"), none),
                       P(none, axes("i", "j"))}) {
    reset_counters();
    const Array y = shard_map(identity, mesh42(), P("i", "j"), out)(x);
    EXPECT_EQ(counters().copies, 0) << out;
    EXPECT_EQ(counters().copied_bytes, 0) << out;
    EXPECT_EQ(y.sharding(), NamedSharding(mesh42(), out));
  }
}

TEST(Outputs, AreFirstClassArrays) {
  const Array x = iota_f32({8, 4});
  const Array y = mapped([](Array b) { return b + 1; }, mesh42(), P("i", "j"), P("i", "j"))(x);
  EXPECT_EQ(y.sharding(), NamedSharding(mesh42(), P("i", "j")));
  const Array z = mapped([](Array b) { return b * 2; }, mesh42(), P("i", "j"), P("i", "j"))(y);
  EXPECT_EQ(z.to_vector<float>(), ((x + 1) * 2).to_vector<float>());
  EXPECT_EQ((y * y).to_vector<float>(), ((x + 1) * (x + 1)).to_vector<float>());
  EXPECT_EQ((y * y).sharding(), y.sharding());
}

TEST(Arguments, HostScalarsClosuresAndNoneAtAll) {
  const auto scaled =
      mapped([](Array x, Array s) { return x * s; }, mesh42(), {P("i"), P()}, P("i"));
  EXPECT_EQ(scaled(arange(8), Array(2.f)).to_vector<float>()[7], 14);
  const Array w = arange(2);
  const auto closure = mapped([&](Array x) { return x + w; }, mesh42(), P("i"), P("i"));
  const auto argument =
      mapped([](Array x, Array v) { return x + v; }, mesh42(), {P("i"), P(none)}, P("i"));
  EXPECT_EQ(closure(arange(8)).to_vector<float>(), argument(arange(8), w).to_vector<float>());
  EXPECT_EQ(mapped([] { return ones({2}); }, mesh42(), {}, P())().to_vector<float>(),
            (std::vector<float>{1, 1}));
}

TEST(Arguments, AClosedOverValueIsInvariant) {
  std::string type;
  const Array w = arange(2);
  mapped(
      [&](Array x) {
        type = to_string((w * 2).type());
        return x;
      },
      mesh42(), P("i"), P("i"))(arange(8));
  EXPECT_EQ(type, "f32[2]");
}

struct Layer {
  Array w;
  std::vector<Array> extra;
};
struct Net {
  Layer first;
  std::map<std::string, Array> heads;
  std::optional<Array> bias;
};
enum class Kind { dense, sparse };
struct Tagged {
  Array w;
  float scale;
  int count;
  Kind kind;
  std::string name;
};

TEST(Trees, StructsWithoutRegistration) {
  const Net net{{arange(8), {arange(8), ones({8})}}, {{"a", arange(8)}, {"b", zeros({4})}}, {}};
  const auto f = mapped(
      [](Net n) {
        n.first.w = n.first.w * 2;
        n.heads["b"] = n.heads["b"] + n.heads["a"].shape()[0];
        return n;
      },
      mesh42(), {{{P("i"), P()}, {{"a", P("i")}, {"b", P("j")}}, P()}},
      {{P("i"), P()}, {{"a", P("i")}, {"b", P("j")}}, P()});
  const Net out = f(net);
  EXPECT_EQ(out.first.w.to_vector<float>()[7], 14);
  EXPECT_EQ(out.first.extra.size(), 2u);
  EXPECT_EQ(out.heads.at("b").to_vector<float>(), (std::vector<float>{2, 2, 2, 2}));
  EXPECT_FALSE(out.bias.has_value());
}

TEST(Trees, StaticMembersPassThrough) {
  const Tagged t{arange(8), 2.f, 3, Kind::sparse, "w"};
  const Tagged out = mapped(
      [](Tagged u) {
        u.w = u.w * u.scale;
        return u;
      },
      mesh42(), P("i"), P("i"))(t);
  EXPECT_EQ(out.w.to_vector<float>()[7], 14);
  EXPECT_EQ(out.count, 3);
  EXPECT_EQ(out.kind, Kind::sparse);
  EXPECT_EQ(out.name, "w");
}

TEST(Trees, ContainersAndPrefixes) {
  using Vec = std::vector<Array>;
  const auto f = mapped(
      [](Vec v, std::tuple<Array, std::pair<Array, Array>> t) {
        return std::pair{v, t};
      },
      mesh42(), {P("i"), {P(), P("j")}}, {P("i"), {P(), P("j")}});
  const auto [v, t] =
      f(Vec{arange(8), arange(4)}, std::tuple{arange(3), std::pair{arange(2), arange(4)}});
  EXPECT_EQ(v.at(1).to_vector<float>(), arange(4).to_vector<float>());
  EXPECT_EQ(std::get<1>(t).second.to_vector<float>(), arange(4).to_vector<float>());
}

TEST(Body, AnyCallable) {
  int calls = 0;
  const auto counting = shard_map(
      [calls](Array x) mutable {
        ++calls;
        return x + calls;
      },
      mesh42(), P("i"), P("i"));
  EXPECT_EQ(counting(zeros({4})).to_vector<float>()[0], 1);
  EXPECT_EQ(counting(zeros({4})).to_vector<float>()[0], 2);
  const auto generic = mapped([](auto a, auto b) { return a + b; }, mesh42(), P("i"), P("i"));
  EXPECT_EQ(generic(arange(4), arange(4)).to_vector<float>()[3], 6);
  const std::function<Array(Array)> erased = shard_map(identity, mesh42(), P("i"), P("i"));
  EXPECT_EQ(erased(arange(4)).to_vector<float>()[3], 3);
}

TEST(Body, PrintsEveryBlockWithItsPlace) {
  std::ostringstream out;
  shard_map(
      [&](Array x) {
        out << x;
        return x;
      },
      make_mesh({2, 2}, {"i", "j"}), P("i", "j"), P("i", "j"))(iota_f32({2, 4}));
  std::string want;
  const char* places[] = {"(0, 0,):\n[[0. 1.]]", "(0, 1,):\n[[2. 3.]]", "(1, 0,):\n[[4. 5.]]",
                          "(1, 1,):\n[[6. 7.]]"};
  for (std::size_t d = 0; d < 4; ++d)
    want += "On " + devices()[d].str() + " at mesh coordinates (i, j,) = " + places[d] + "\n";
  EXPECT_EQ(out.str(), want);
}

TEST(Body, DebugPrintKeepsProgramOrder) {
  testing::internal::CaptureStdout();
  shard_map(
      [](Array x) {
        debug::print("begin");
        debug::print("x = {} of {}", x, 3);
        debug::print("sum = {}", psum(sum(x), "i"));
        return x;
      },
      make_mesh({2}, "i"), P("i"), P("i"))(arange(4));
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "begin\n(i,) = (0,) x = [0. 1.] of 3\n(i,) = (1,) x = [2. 3.] of 3\nsum = 6.0\n");
}

TEST(Body, HostControlFlowOnInvariantValues) {
  const auto f = shard_map(
      [](Array x) {
        if (psum(sum(x), {"i", "j"}) < 0) return x;
        return -x;
      },
      make_mesh({2, 2}, {"i", "j"}), P("i", "j"), P("i", "j"));
  EXPECT_EQ(f(iota_f32({2, 2})).to_vector<float>(), (std::vector<float>{-0.f, -1, -2, -3}));
  EXPECT_EQ(f(-iota_f32({2, 2})).to_vector<float>(), (std::vector<float>{-0.f, -1, -2, -3}));
  shard_map(
      [](Array x) {
        EXPECT_EQ(psum(sum(x), "i").item<float>(), 6);
        EXPECT_EQ(psum(1, "i"), 2);
        return x;
      },
      make_mesh({2}, "i"), P("i"), P("i"))(arange(4));
}

TEST(Body, PsumOfAnAxisIndexDecides) {
  const auto f = shard_map(
      [] {
        if (psum(axis_index("i"), "i") > 0) return ones({1});
        return zeros({1});
      },
      make_mesh({8}, "i"), {}, P());
  EXPECT_EQ(f().item<float>(), 1);
}

TEST(Body, UnmentionedInputsAreOneValue) {
  const Array x = arange(8);
  const auto f = mapped([](Array b) { return pvary(b, "i"); }, make_mesh({4}, "i"), P(), P("i"));
  const Array y = f(x);
  EXPECT_EQ(y.shape(), (Shape{32}));
  EXPECT_EQ(y.to_vector<float>(), tile(x, 4).to_vector<float>());
}

TEST(Memory, AReplicatedArgumentIsStoredOnceASpace) {
  const std::int64_t bytes = std::int64_t{1} << 20;
  const Array x = zeros({bytes / 4});
  x.block_until_ready();
  reset_counters();
  const Array y = shard_map(identity, mesh42(), P(), P())(x);
  const Counters c = counters();
  // One space has the value already; each other space takes a copy.
  EXPECT_EQ(c.copied_bytes % bytes, 0);
  EXPECT_LT(c.copied_bytes / bytes, 8);
  EXPECT_EQ(c.copied_bytes / bytes, c.allocations);
}

TEST(Donation, WritesInPlaceInABody) {
  const Array x = iota_f32({8, 4});
  reset_counters();
  std::int64_t before = 0, after = 0;
  shard_map(
      [&](Array b) {
        Array y = b + 1;
        before = counters().allocations;
        y = std::move(y) * 2;
        y += 3;
        after = counters().allocations;
        return y;
      },
      mesh42(), P("i", "j"), P("i", "j"))(x);
  EXPECT_GT(before, 0);
  EXPECT_EQ(after, before);
}

TEST(Donation, NeverThroughASharedBuffer) {
  const Array x = arange(4);
  const auto f = mapped(
      [](Array b) {
        Array y = pvary(b * 1, "i");  // stored once, typed as varying
        y = std::move(y) + axis_index("i");
        return y;
      },
      make_mesh({4}, "i"), P(), P("i"));
  std::vector<float> want;
  for (int d = 0; d < 4; ++d)
    for (int k = 0; k < 4; ++k) want.push_back(static_cast<float>(k + d));
  EXPECT_EQ(f(x).to_vector<float>(), want);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace shmap
