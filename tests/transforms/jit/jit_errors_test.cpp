// shmap-test: devices
// Errors under jit: values asked for while tracing, tracers that escape, bodies that throw,
// arguments that changed, unbound axis names.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using test::expect_error;

Mesh mesh8() { return make_mesh({8}, "i"); }
Array numbers(Shape shape) { return reshape(arange(shape.num_elements()), shape); }
std::string here(int line) { return "jit_errors_test.cpp:" + std::to_string(line); }

// `read` of a traced value, in a function and in the body of a shard_map that is traced.
template <class Read>
void expect_refused(Read read, const char* op) {
  const Array x = device_put(numbers({8}), NamedSharding(mesh8(), P("i")));
  const auto f = [&](Array y) {
    y = y + 1;
    read(y);
    return y;
  };
  const auto in_jit = {op, "traced", "in the jit made at", "jit_errors_test.cpp:"};
  expect_error<TypeError>([&] { jit(f)(x); }, in_jit);
  expect_error<TypeError>([&] { jit(shard_map(f, mesh8(), P("i"), P("i")))(x); }, in_jit);
  expect_error<TypeError>([&] { make_jaxpr(f)(x); }, {op, "traced", "in the make_jaxpr made at"});
  const Array after = jit([](Array y) { return y + 1; })(x);
  EXPECT_EQ(after.to_vector<float>()[7], 8.f);
}

TEST(HostReads, AreRefusedByName) {
  expect_refused([](const Array& x) { sum(x).item<float>(); }, "item");
  expect_refused([](const Array& x) { x.to_vector<float>(); }, "to_vector");
  expect_refused([](const Array& x) { return sum(x) > 0 ? 1 : 2; }, "condition");
  expect_refused([](const Array& x) { x.sharding(); }, "sharding");
  expect_refused([](const Array& x) { x.addressable_shards(); }, "addressable_shards");
  expect_refused([](const Array& x) { save_npy("never.npy", x); }, "save_npy");
  expect_refused([](const Array& x) { x[0].item<float>(); }, "item");
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const TypeError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

// The end of a message: which operation gave the value, the transforms from the inside to the
// outside, and the call.
TEST(HostReads, NameTheOperationAndTheTransforms) {
  const auto at = [](int line) { return std::string(__FILE__) + ":" + std::to_string(line); };
  const auto expect_end = [](const std::string& text, const std::vector<std::string>& lines) {
    std::string end;
    for (const std::string& line : lines) end += "\n  " + line;
    EXPECT_TRUE(text.ends_with(end)) << text << "\nwanted at its end:" << end;
  };
  const Array x = numbers({8});
  const int read_line = __LINE__ + 3;
  const auto read = [](Array y) {
    const Array s = sum(y);
    return y * s.item<float>();
  };
  const auto f = jit(read);
  const int made_line = __LINE__ - 1;
  expect_end(message_of([&] { f(x); }),
             {"the array is the result of reduce_sum at " + at(read_line - 1),
              "in the jit made at " + at(made_line), "at " + at(read_line)});
  const auto branch = [](Array y) { return y[0] ? y : -y; };
  const auto g = jit(branch);
  expect_end(message_of([&] { g(x); }), {"in the jit made at " + at(__LINE__ - 1)});

  const auto mapped = shard_map(read, mesh8(), P("i"), P("i"));
  const int mapped_line = __LINE__ - 1;
  const auto h = jit(mapped);
  expect_end(message_of([&] { h(x); }),
             {"the array is the result of reduce_sum at " + at(read_line - 1),
              "in the shard_map made at " + at(mapped_line),
              "in the jit made at " + at(mapped_line + 2), "at " + at(read_line)});
  expect_end(message_of([&] { mapped(x); }),
             {"the array is the result of reduce_sum at " + at(read_line - 1),
              "in the shard_map made at " + at(mapped_line), "at " + at(read_line)});
}

TEST(HostReads, NameOtherTransforms) {
  const Array x = numbers({8});
  const auto read = [](Array y) { return y * sum(y * y).item<float>(); };
  const auto loss = [&](Array y) { return sum(read(y)); };
  expect_error<TypeError>([&] { jit(grad(loss))(x); },
                          {"being traced by jit", "the result of reduce_sum at",
                           "in the grad made at", "in the jit made at", "without jit"});
  expect_error<TypeError>(
      [&] {
        jit(vmap(read))(reshape(x, {4, 2}));
      },
      {"under vmap", "the result of reduce_sum at", "in the vmap made at", "in the jit made at"});
  expect_error<TypeError>(
      [&] {
        jit([&](Array y) {
          return scan(
                     [](Array c, Array e) {
                       return std::pair{c * e.item<float>(), none};
                     },
                     Array(1.f), y)
              .first;
        })(x);
      },
      {"an argument of the function", "in the scan called at", "in the jit made at"});
}

TEST(HostReads, AreNotWhatPrintingAndWaitingDo) {
  std::ostringstream out;
  const auto f = jit([&](Array x) {
    x.block_until_ready();
    out << x;
    return x + 1;
  });
  EXPECT_EQ(f(numbers({2})).to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(out.str(), "Traced<f32[2]>");
}

TEST(Tracers, MayNotEscape) {
  Array kept;
  const auto f = jit([&](Array x) {
    kept = x * 2;
    return x;
  });
  const Array x = numbers({4});
  f(x);
  expect_error<TypeError>([&] { kept + 1; }, {"jit", "add"});
  expect_error<TypeError>([&] { kept.to_vector<float>(); }, {"jit", "to_vector"});
  expect_error<TypeError>([&] { f(kept); }, {"jit"});
  expect_error<TypeError>([&] { jit([&](Array y) { return y + kept; })(x); }, {"jit", "add"});
  expect_error<TypeError>([&] { jit([&](Array) { return kept; })(x); }, {"jit"});
  std::string error;
  jit([&](Array y) {
    std::thread([&] {
      try {
        y + 1;
      } catch (const TypeError& e) {
        error = e.what();
      }
    }).join();
    return y;
  })(x);
  EXPECT_NE(error.find("jit"), std::string::npos) << error;
  EXPECT_EQ(f(x).to_vector<float>(), x.to_vector<float>());
}

TEST(Bodies, ThatThrowKeepNothing) {
  int left = 3;
  const auto f = jit(shard_map(
      [&](Array x) {
        Array y = psum(x, "i");
        if (left-- > 0) throw std::out_of_range("of the body");
        return y;
      },
      mesh8(), P("i"), P()));
  const Array x = numbers({8});
  for (int k = 0; k < 3; ++k) expect_error<std::out_of_range>([&] { f(x); }, {"of the body"});
  for (int k = 0; k < 4; ++k) EXPECT_EQ(f(x).item<float>(), 28.f);
}

TEST(Bodies, NameUnboundAxes) {
  const int line = __LINE__ + 1;
  const auto f = jit([](Array x) { return psum(x, "k"); });
  expect_error<CollectiveError>([&] { f(1.f); }, {"psum", "'k'", here(line).c_str()});
  const auto g = jit(shard_map([](Array x) { return psum(x, "k"); }, mesh8(), P("i"), P()));
  expect_error<CollectiveError>([&] { g(numbers({8})); }, {"psum", "'k'", "'i'"});
}

TEST(Bodies, AreCheckedAsEagerly) {
  const auto varies = jit(shard_map([](Array x) { return x; }, mesh8(), P("i"), P()));
  expect_error<ValueError>([&] { varies(numbers({8})); }, {"shard_map", "out_specs"});
  const auto halves = jit(shard_map([](Array x) { return x; }, mesh8(), P("i"), P("i")));
  expect_error<ValueError>([&] { halves(numbers({9})); }, {"shard_map", "9", "args[0]"});
  const auto product = jit([](Array x) { return matmul(x, x); });
  const int line = __LINE__ - 1;
  expect_error<ValueError>([&] { product(numbers({2, 3})); }, {"matmul", here(line).c_str()});
}

TEST(Arguments, ThatChangeAreTracedAgain) {
  int traces = 0;
  const auto f = jit([&](Array x) {
    ++traces;
    return x * 2 + 1;
  });
  const auto expect_right = [&](const Array& x, int traced) {
    for (int k = 0; k < 4; ++k) {
      test::expect_same(test::see({x * 2 + 1}), test::see({f(x)}), "call " + std::to_string(k));
      EXPECT_EQ(traces, traced);
    }
  };
  const Array x = numbers({8, 8});
  expect_right(x, 1);
  expect_right(numbers({8, 4}), 2);
  expect_right(astype(x, i32), 3);
  expect_right(device_put(x, NamedSharding(mesh8(), P("i"))), 4);
  expect_right(device_put(x, NamedSharding(mesh8(), P(none, "i"))), 5);
  expect_right(device_put(x, NamedSharding(make_mesh({4, 2}, axes("a", "b")), P("a", "b"))), 6);
  expect_right(device_put(x, devices()[3]), 7);
  expect_right(Array(2.f), 8);
  expect_right(x, 8);
}

TEST(Arguments, OnUnlikeMeshesAreRefusedAsEagerly) {
  const Array a = device_put(numbers({8}), NamedSharding(mesh8(), P("i")));
  const Array b = device_put(numbers({8}), devices()[3]);
  const auto f = [](Array x, Array y) { return x + y; };
  std::string eager;
  try {
    f(a, b);
  } catch (const Error& e) {
    eager = e.what();
  }
  ASSERT_NE(eager, "");
  for (int k = 0; k < 3; ++k) expect_error<Error>([&] { jit(f)(a, b); }, {eager.c_str()});
}

TEST(Constraints, AreNotForBlocks) {
  const auto f = [](Array x) { return with_sharding_constraint(x, NamedSharding(mesh8(), P())); };
  expect_error<ValueError>([&] { jit(shard_map(f, mesh8(), P("i"), P("i")))(numbers({8})); },
                           {"with_sharding_constraint", "body of a shard_map", "outside"});
  const auto split =
      jit([](Array x) { return with_sharding_constraint(x, NamedSharding(mesh8(), P("i"))); });
  expect_error<ValueError>([&] { split(numbers({9})); }, {"with_sharding_constraint", "9"});
}

}  // namespace
}  // namespace shmap
