// shmap-test: devices
// The errors of shard_map and their texts: argument path, shape, spec, axis, sizes and the
// remedy.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <string>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }
Array iota_f32(Shape shape) { return reshape(arange(shape.num_elements()), shape); }
Array identity(Array x) { return x; }

TEST(SpecErrors, AreFoundWhenTheFunctionIsMapped) {
  expect_error<ValueError>(
      [] { shard_map(identity, mesh42(), P("q"), P()); },
      {"in_specs", "P('q')", "'q'", "position 0", "'i': 4, 'j': 2", "errors_test.cpp:"});
  expect_error<ValueError>([] { shard_map(identity, mesh42(), {P(none, "q")}, P()); },
                           {"in_specs[0]", "position 1"});
  expect_error<ValueError>([] { shard_map(identity, mesh42(), P("i", "i"), P()); },
                           {"'i'", "more than once"});
  expect_error<ValueError>([] { shard_map(identity, mesh42(), P(), P(axes("i", "i"))); },
                           {"out_specs", "'i'", "more than once"});
}

TEST(InputErrors, DimNotDivisible) {
  const auto f = shard_map(identity, mesh42(), P("i", none), P("i", none));
  expect_error<ValueError>(
      [&] {
        f(iota_f32({13, 12}));
      },
      {"args[0]", "in_specs", "dim 0", "(13, 12)", "13", "'i'", "size 4", "errors_test.cpp:"});
  const auto both = shard_map(identity, mesh42(), P(axes("i", "j")), P());
  expect_error<ValueError>([&] { both(iota_f32({12, 3})); }, {"12", "'i'", "'j'", "total size 8"});
}

TEST(InputErrors, AllOffendersAreNamed) {
  const auto f = shard_map([](Array a, Array, Array) { return a; }, mesh42(),
                           {P("i"), P(), P(none, "j")}, P("i"));
  expect_error<ValueError>(
      [&] {
        f(arange(3), arange(3), iota_f32({4, 5}));
      },
      {"2 problems", "args[0]", "args[2]", "in_specs[2]", "'j'"});
}

TEST(InputErrors, PathsLeadThroughTrees) {
  struct Layer {
    Array w, b;
  };
  const auto f = shard_map([](Layer l, std::map<std::string, Array>) { return l.w; }, mesh42(),
                           {{P(), P("i")}, {{"u", P("j")}}}, P());
  expect_error<ValueError>(
      [&] {
        f(Layer{arange(8), arange(3)}, std::map<std::string, Array>{{"u", arange(5)}});
      },
      {"args[0].field(1)", "in_specs[0][1]", "args[1]['u']", "in_specs[1]['u']"});
}

TEST(InputErrors, SpecLongerThanRank) {
  const auto f = shard_map(identity, mesh42(), P("i", none, none), P());
  expect_error<ValueError>([&] { f(iota_f32({4, 4})); }, {"args[0]", "length 3", "rank 2"});
  expect_error<ValueError>([&] { shard_map(identity, mesh42(), P("i"), P())(2.f); },
                           {"length 1", "rank 0", "P()"});
  expect_error<ValueError>([&] { shard_map(identity, mesh42(), P(none), P())(2.f); },
                           {"length 1", "rank 0", "P()"});
}

TEST(InputErrors, NumberOfSpecs) {
  const auto f = shard_map([](Array a, Array) { return a; }, mesh42(), {P("i")}, P("i"));
  expect_error<ValueError>([&] { f(arange(8), arange(8)); },
                           {"in_specs", "1 entry", "2 arguments"});
}

TEST(InputErrors, TreesThatDoNotFit) {
  using Vec = std::vector<Array>;
  using Map = std::map<std::string, Array>;
  const auto list = shard_map([](Vec v) { return v[0]; }, mesh42(), {{P("i"), P("i")}}, P("i"));
  expect_error<ValueError>(
      [&] {
        list(Vec{arange(8), arange(8), arange(8)});
      },
      {"in_specs[0]", "2 entries", "3"});
  const auto map =
      shard_map([](Map m) { return m.begin()->second; }, mesh42(), {{{"a", P()}}}, P());
  expect_error<ValueError>([&] { map(Map{{"b", arange(8)}}); }, {"in_specs[0]", "'a'", "args[0]"});
  expect_error<ValueError>(
      [&] {
        map(Map{{"a", arange(8)}, {"b", arange(8)}});
      },
      {"no spec", "['b']"});
  const auto leaf = shard_map(identity, mesh42(), {{P("i"), P("i")}}, P("i"));
  expect_error<ValueError>([&] { leaf(arange(8)); }, {"in_specs[0]", "list", "args[0]", "one P"});
}

TEST(InputErrors, EmptyAndMovedFromArrays) {
  const auto f = shard_map(identity, mesh42(), P(), P());
  expect_error<ValueError>([&] { f(Array()); }, {"args[0]", "empty", "moved from"});
  Array x = arange(8);
  const Array y = std::move(x);
  expect_error<ValueError>([&] { f(x); }, {"args[0]"});
  expect_error<ValueError>([&] { x + 1; }, {"add", "moved from"});
}

TEST(InputErrors, ArgumentsOnAnotherMesh) {
  const std::vector<Device> all = devices();
  const Mesh first(NdArray<Device>({all[0], all[1]}, {2}), "i"),
      second(NdArray<Device>({all[2], all[3]}, {2}), "i");
  const Array a = device_put(arange(4), NamedSharding(first, P("i")));
  const Array b = device_put(arange(4), NamedSharding(second, P("i")));
  expect_error<ValueError>([&] { shard_map(identity, second, P("i"), P("i"))(a); },
                           {"args[0]", "device_put"});
  expect_error<ValueError>([&] { a + b; }, {"add", "Mesh('i': 2)", "device_put"});
}

TEST(OutputErrors, RankTooSmall) {
  const auto f = shard_map([](Array x) { return sum(x, 1); }, mesh42(), P("i", "j"), P("i", "j"),
                           {.check_vma = false});
  expect_error<ValueError>(
      [&] {
        f(iota_f32({4, 4}));
      },
      {"the result", "out_specs", "length 2", "rank 1"});
  const auto scalar = shard_map(
      [] {
        return std::map<std::string, Array>{{"hi", Array(3.f)}};
      },
      mesh42(), {}, {{"hi", P("i")}});
  expect_error<ValueError>([&] { scalar(); }, {"out_specs['hi']", "length 1", "rank 0"});
}

// Untiled, these leave out the dim that they cut: the message says so where a dim is missing.
TEST(OutputErrors, ADimThatAnUntiledCollectiveTook) {
  const auto f = shard_map([](Array x) { return psum_scatter(x, "i"); }, mesh42(), P("i"), P("i"));
  const auto wanted = {"length 1", "rank 0", "the value is the result of psum_scatter at",
                       "without {.tiled = true} leaves out the dim"};
  expect_error<ValueError>([&] { f(arange(16)); }, wanted);
  expect_error<ValueError>([&] { jit(f)(arange(16)); }, wanted);
  expect_error<ValueError>([&] { grad([&](Array x) { return sum(f(x)); })(arange(16)); }, wanted);
}

// A whole array that the body closes over, where the block of it was meant.
TEST(BodyErrors, ACapturedArrayIsNoBlock) {
  const Array w = arange(8);
  const auto wanted = {
      "was made outside of the shard_map body", "spec P()",        "operand 1", "f32[8]",
      "pass it to the function as an argument", "errors_test.cpp:"};
  const auto expect_captured = [&](auto body) {
    const auto f = shard_map(body, mesh42(), P("i"), P("i"));
    const Array x = arange(16);
    expect_error<ValueError>([&] { f(x); }, wanted);
    expect_error<ValueError>([&] { jit(f)(x); }, wanted);
    expect_error<ValueError>([&] { make_jaxpr(f)(x); }, wanted);
    expect_error<ValueError>([&] { grad([&](Array y) { return sum(f(y)); })(x); }, wanted);
    expect_error<ValueError>([&] { vmap(f)(stack({x, x})); }, wanted);
  };
  expect_captured([&](Array x) { return x * w; });
  expect_captured([&](Array x) { return where(x > 1, w, x); });
  expect_captured([&](Array x) { return matmul(x, w); });
  // Blocks of the body that do not fit have no such note.
  const auto own = shard_map(
      [](Array x) {
        return x + concatenate({x, x});
      },
      mesh42(), P("i"), P("i"));
  try {
    own(arange(16));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ValueError& e) {
    EXPECT_EQ(std::string(e.what()).find("outside of the shard_map body"), std::string::npos);
  }
}

TEST(OutputErrors, BlocksThatMayDiffer) {
  const auto f = shard_map([](Array x) { return 2 * x; }, mesh42(), P("i", "j"), P(none, "j"));
  expect_error<ValueError>(
      [&] {
        f(iota_f32({4, 4}));
      },
      {"the result", "out_specs", "P(none, 'j')", "{'i'}", "statically inferred", "f32[1,2]{i,j}",
       "check_vma = false", "psum", "the value is the result of mul at", "errors_test.cpp:"});
  const auto summed =
      shard_map([](Array x) { return psum(2 * x, "i"); }, mesh42(), P("i", "j"), P(none, "j"));
  EXPECT_NO_THROW(summed(iota_f32({4, 4})));
  const auto unchecked = shard_map([](Array x) { return 2 * x; }, mesh42(), P("i", "j"),
                                   P(none, "j"), {.check_vma = false});
  const Array y = unchecked(iota_f32({4, 4}));
  EXPECT_EQ(y.shape(), (Shape{1, 4}));
  // The row of this process's first device.
  const auto first = static_cast<float>(4 * (local_devices().front().id() / 2));
  EXPECT_EQ(y.to_vector<float>(),
            (std::vector<float>{2 * first, 2 * first + 2, 2 * first + 4, 2 * first + 6}));
}

TEST(OutputErrors, StructureOfTheResult) {
  const auto f = shard_map([](Array x) { return std::tuple{x, x}; }, mesh42(), P("i"), {P("i")});
  expect_error<ValueError>([&] { f(arange(8)); }, {"out_specs", "1 entry", "the result", "2"});
}

TEST(BodyErrors, WrongVarianceWithoutCasts) {
  const auto f = shard_map([](Array x, Array y) { return x * y; }, mesh42(), {P(), P("i")}, P("i"),
                           {.auto_pbroadcast = false});
  expect_error<TypeError>([&] { f(2.f, arange(8)); },
                          {"mul", "f32[]", "f32[2]{i}", "varying", "match", "pbroadcast"});
  const auto g = shard_map([](Array x, Array y) { return pbroadcast(x, "i") * y; }, mesh42(),
                           {P(), P("i")}, P("i"), {.auto_pbroadcast = false});
  EXPECT_EQ(g(2.f, arange(8)).to_vector<float>()[7], 14);
}

TEST(BodyErrors, HostControlFlowOnVaryingValues) {
  const auto f = shard_map([](Array x) { return sum(x) > 0 ? x : -x; }, mesh42(), P("i"), P("i"));
  expect_error<TypeError>(
      [&] { f(arange(8)); },
      {"bool[]{i}", "differ", "psum", "the result of gt at", "in the shard_map made at"});
  const auto item = shard_map(
      [](Array x) {
        sum(x).item<float>();
        return x;
      },
      mesh42(), P("i"), P("i"));
  expect_error<TypeError>([&] { item(arange(8)); },
                          {"item", "f32[]{i}", "the result of reduce_sum at", "errors_test.cpp:"});
}

TEST(BodyErrors, ValuesThatEscape) {
  Array kept;
  const auto f = shard_map(
      [&](Array x) {
        kept = x;
        return x;
      },
      mesh42(), P("i"), P("i"));
  f(arange(8));
  expect_error<TypeError>([&] { kept + 1; },
                          {"add", "f32[2]{i}", "under shard_map", "an argument of the function"});
  expect_error<TypeError>([&] { f(kept); }, {"args[0]", "under shard_map"});
}

TEST(BodyErrors, ThrownByTheBody) {
  struct Odd {};
  const Array x = arange(8);
  for (int round = 0; round < 1000; ++round) {
    const auto before = shard_map(
        [](Array b) -> Array {
          if (b.ndim() == 1) throw std::out_of_range("before");
          return b;
        },
        mesh42(), P("i"), P("i"));
    EXPECT_THROW(before(x), std::out_of_range);
    const auto after = shard_map(
        [](Array b) -> Array {
          const Array s = psum(b, "i");
          if (s.ndim() == 1) throw Odd{};
          return s;
        },
        mesh42(), P("i"), P());
    EXPECT_THROW(after(x), Odd);
  }
  EXPECT_EQ(shard_map(identity, mesh42(), P("i"), P("i"))(x).to_vector<float>(),
            x.to_vector<float>());
}

TEST(BodyErrors, UnboundAxis) {
  expect_error<CollectiveError>([] { psum(arange(4), "i"); }, {"psum", "unbound", "'i'"});
  const auto f = shard_map([](Array x) { return psum(x, "q"); }, mesh42(), P("i"), P());
  expect_error<CollectiveError>([&] { f(arange(8)); }, {"psum", "unbound", "'q'", "'i'", "'j'"});
  const auto misspelt =
      shard_map([](Array x) { return psum(x, "rosw"); }, make_mesh({8}, "rows"), P("rows"), P());
  expect_error<CollectiveError>([&] { misspelt(arange(8)); },
                                {"unbound axis name 'rosw' (did you mean 'rows'?)"});
}

TEST(SpecErrors, AKeyTwice) {
  expect_error<ValueError>(
      [] {
        shard_map(identity, mesh42(), Specs{{"u", P("i")}, {"v", P()}, {"u", P("j")}}, P("i"));
      },
      {"shard_map: in_specs", "two specs for the key 'u'", "errors_test.cpp:"});
}

TEST(BodyErrors, NestedMaps) {
  const auto inner = shard_map(identity, mesh42(), P("i"), P("i"));
  const auto outer = shard_map([&](Array x) { return inner(x); }, mesh42(), P("i"), P("i"));
  EXPECT_THROW(outer(arange(8)), Error);
}

// Whatever transforms are between the two bodies.
TEST(BodyErrors, NestedMapsOverTheSameDevicesInAnotherOrder) {
  const Mesh mesh = mesh42();
  std::vector<Device> order = mesh.devices().values();
  std::swap(order[0], order[1]);
  const Mesh other(NdArray<Device>(order, {4, 2}), mesh.axis_names());
  const auto inner = [&](Array v) {
    return shard_map([](Array b) { return b * 2.f; }, other, P(), P(), {.axis_names = "j"})(v);
  };
  const auto without_arguments = [&] {
    return shard_map([] { return ones({2}); }, other, {}, P(), {.axis_names = "j"})();
  };
  const std::function<Array(Array)> bodies[] = {
      inner,
      [&](Array v) { return v + without_arguments(); },
      [&](Array v) { return jit(inner)(v); },
      [&](Array v) { return vmap(inner)(v); },
      [&](Array v) { return checkpoint(inner)(v); },
      [&](Array v) { return jvp(inner, std::tuple{v}, std::tuple{v}).second; },
      [&](Array v) { return grad([&](Array w) { return sum(inner(w)); })(v); },
      [&](Array v) { return grad([&](Array w) { return sum(w * without_arguments()); })(v); }};
  for (const auto& body : bodies) {
    SCOPED_TRACE(&body - bodies);
    const auto f = shard_map(body, mesh, P("i"), P("i"), {.axis_names = "i"});
    for (const std::function<Array(Array)>& call : {std::function<Array(Array)>(f), {jit(f)}}) {
      expect_error<ValueError>([&] { call(arange(8)); }, {"called in the body of another shard_map",
                                                          "have one mesh", "errors_test.cpp:"});
    }
  }
}

TEST(AbstractMeshes, HaveNoDevicesToRunOn) {
  const auto f = shard_map(identity, AbstractMesh({256, 64}, {"p", "q"}), P("p"), P("p"));
  expect_error<DeviceError>([&] { f(arange(512)); }, {"abstract", "'p': 256"});
}

std::string here(int line) { return "errors_test.cpp:" + std::to_string(line); }

// An array on other devices is refused by every mode, in the same words, and not moved.
TEST(InputErrors, OnOtherDevices) {
  const std::vector<Device> all = devices();
  const Mesh left(NdArray<Device>({all[0], all[1], all[2], all[3]}, {4}), "i");
  const Mesh right(NdArray<Device>({all[4], all[5], all[6], all[7]}, {4}), "i");
  const Array x = iota_f32({8, 8}), there = device_put(x, NamedSharding(left, P("i")));
  const auto f = shard_map([](Array b) { return b * 1.f; }, right, P("i"), P("i"));
  const auto text_of = [](auto call) {
    try {
      call();
    } catch (const ValueError& e) {
      return std::string(e.what()).substr(0, std::string(e.what()).find("\n"));
    }
    return std::string("nothing was thrown");
  };
  const std::string want = text_of([&] { f(there); });
  for (const char* part : {"args[0] of type f32[8,8] is placed on", "devices 0 to 3", "mapped over",
                           "devices 4 to 7", "device_put"})
    EXPECT_NE(want.find(part), std::string::npos) << part << "\nin: " << want;
  const auto loss = [&](Array a) { return sum(f(a)); };
  EXPECT_EQ(text_of([&] { jit(f)(there); }), want);
  EXPECT_EQ(text_of([&] { jit([&](Array a) { return f(a) + 1.f; })(there); }), want);
  EXPECT_EQ(text_of([&] { grad(loss)(there); }), want);
  EXPECT_EQ(text_of([&] { jvp(f, std::tuple{there}, std::tuple{there}); }), want);
  EXPECT_EQ(text_of([&] { vmap(f, {1}, {1})(there); }).find("args[0] of type f32[8] is placed on"),
            want.find("args[0] of type"));
  const auto twice = [&](Array a) {
    return f(shard_map([](Array b) { return b; }, left, P("i"), P("i"))(a));
  };
  EXPECT_EQ(text_of([&] { twice(x); }), want);
  EXPECT_EQ(text_of([&] { jit(twice)(x); }), want);
  // The same for a value that a body closes over.
  const auto closes = shard_map([&](Array b) { return b + there; }, right, P(), P());
  const std::string closed = text_of([&] { closes(x); });
  EXPECT_NE(closed.find("a value that the body closes over of type f32[8,8] is placed on"),
            std::string::npos)
      << closed;
  EXPECT_EQ(text_of([&] { jit(closes)(x); }), closed);
  // The same devices in another mesh are not other devices.
  const Mesh whole = make_mesh({4, 2}, {"i", "j"}), flat = make_mesh({8}, {"k"});
  const auto g = shard_map([](Array b) { return b * 1.f; }, flat, P("k"), P("k"));
  const Array y = device_put(x, NamedSharding(whole, P("i", "j")));
  EXPECT_EQ(g(y).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(jit(g)(y).to_vector<float>(), x.to_vector<float>());
}

// The texts have the line where the function was made and the line where it was called.
TEST(InputErrors, NameBothLines) {
  const int made = __LINE__ + 1;
  const auto f = shard_map([](Array a, Array) { return a; }, mesh42(), P("i"), P("i"));
  int called = 0;
  const auto expect_both = [&](auto call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ValueError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("made at"), std::string::npos) << text;
      EXPECT_NE(text.find(here(made)), std::string::npos) << text;
      EXPECT_NE(text.find("\n  at "), std::string::npos) << text;
      EXPECT_NE(text.find(here(called)), std::string::npos) << text;
    }
  };
  expect_both([&] {
    called = __LINE__ + 1;
    f(arange(3), arange(8));
  });
  expect_both([&] {
    called = __LINE__ + 1;
    jit([&](Array a, Array b) { return f(a, b); })(arange(3), arange(8));
  });
  // If the library calls the function, only the line where it was made is known.
  try {
    jit(f)(arange(3), arange(8));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ValueError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find(here(made)), std::string::npos) << text;
    EXPECT_EQ(text.find("flat_call.h"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace shmap
