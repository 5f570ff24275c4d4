// shmap-test: devices
// Programs under shard_map against JAX's values and result types: blocks by specs, untiling, block
// transposes, sums, products, the collective matmul. Eagerly, and the same under jit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "shmap/collectives.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/golden_array.h"
#include "tests/support/golden_mesh.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using testing::GoldenCase;
using Arrays = std::vector<Array>;

// One call of a case's body: makes the mapped function from the case's mesh and specs, and keeps
// the types of what the body returned.
class Call {
 public:
  Call(const GoldenCase& c, bool under_jit) : case_(c), under_jit_(under_jit) {
    for (const auto& x : c.inputs) args_.push_back(testing::to_array(x));
  }
  // f takes `sizeof...(K)` arrays and returns an Array.
  template <int N, class F>
  Arrays one(F f) {
    return {with_args<N>([this, f](auto... blocks) {
      Array y = f(blocks...);
      types_ = {to_string(y.type())};
      return y;
    })};
  }
  // f returns a vector of arrays: one out_spec each.
  template <int N, class F>
  Arrays several(F f) {
    return with_args<N>([this, f](auto... blocks) {
      Arrays out = f(blocks...);
      types_.clear();
      for (const Array& y : out) types_.push_back(to_string(y.type()));
      return out;
    });
  }
  const std::vector<std::string>& types() const { return types_; }
  const testing::GoldenParams& params() const { return case_.params; }

 private:
  template <int N, class F>
  auto with_args(F f) {
    ShardMapOptions options;
    options.check_vma = case_.params.flag_or("check_vma", true);
    if (case_.params.has("axis_names")) options.axis_names = Axes(case_.params.texts("axis_names"));
    const auto mapped = shard_map(f, testing::case_mesh(case_), testing::case_in_specs(case_),
                                  testing::case_out_specs(case_), options);
    const auto run = [&](const auto&... args) {
      return under_jit_ ? test::expect_same_under_jit(mapped, test::Communication::same, args...)
                        : mapped(args...);
    };
    if constexpr (N == 0) return run();
    if constexpr (N == 1) return run(args_.at(0));
    if constexpr (N == 2) return run(args_.at(0), args_.at(1));
    if constexpr (N == 3) return run(args_.at(0), args_.at(1), args_.at(2));
    if constexpr (N == 4) return run(args_.at(0), args_.at(1), args_.at(2), args_.at(3));
  }
  const GoldenCase& case_;
  bool under_jit_;
  Arrays args_;
  std::vector<std::string> types_;
};

// C = A @ B by a ring: each step multiplies the block at hand while a neighbour sends the next.
Array ring_matmul(Array lhs, Array rhs) {
  const int n = axis_size("i");
  const std::int64_t rows = lhs.shape()[0];
  const Array index = axis_index("i");
  std::vector<std::pair<int, int>> left;
  for (int k = 0; k < n; ++k) left.emplace_back(k, (k + n - 1) % n);
  Array out = pbroadcast(zeros({n * rows, rhs.shape()[1]}, lhs.dtype()), "i");
  for (int step = 0; step < n; ++step) {
    const Array row = (index + step) % n * static_cast<int>(rows);
    out = dynamic_update_slice(std::move(out), matmul(lhs, rhs), {row, 0});
    if (step + 1 < n) lhs = ppermute(lhs, "i", left);
  }
  return out;
}

using Program = Arrays (*)(Call&);
// The programs by name, or by the part of the name before "/".
const std::map<std::string, Program>& programs() {
  const auto identity = [](Call& call) { return call.one<1>([](Array x) { return x; }); };
  static const std::map<std::string, Program> table = {
      {"matmul_basic",
       [](Call& call) {
         return call.one<2>([](Array a, Array b) { return psum(matmul(a, b), "j"); });
       }},
      {"matmul_reduce_scatter",
       [](Call& call) {
         return call.one<2>([](Array a, Array b) {
           return psum_scatter(matmul(a, b), "j", {.scatter_dimension = 1, .tiled = true});
         });
       }},
      {"f1", identity},
      {"f2", identity},
      {"tiled_major_first", identity},
      {"minor_first", identity},
      {"identity_rows", identity},
      {"identity_xyz", identity},
      {"untile", identity},
      {"block_transpose", identity},
      {"rank_preserving",
       [](Call& call) { return call.one<1>([](Array x) {
                          return sum(x) + zeros({3, 7});
                        }); }},
      {"permuted_devices",
       [](Call& call) {
         return call.one<1>([](Array x) { return x + 10 * astype(axis_index("i"), f32); });
       }},
      {"no_arguments", [](Call& call) { return call.one<0>([] {
                                          return full({1, 1}, 3.f);
                                        }); }},
      {"f3", [](Call& call) { return call.one<1>([](Array x) { return psum(x, "j"); }); }},
      {"f4", [](Call& call) { return call.one<1>([](Array x) { return psum(x, "i"); }); }},
      {"f5", [](Call& call) { return call.one<1>([](Array x) {
                                return psum(x, {"i", "j"});
                              }); }},
      {"transpose_blocks_and_insides",
       [](Call& call) { return call.one<1>([](Array x) { return transpose(x); }); }},
      {"unchecked_takes_a_replica",
       [](Call& call) { return call.one<1>([](Array x) { return 2 * x; }); }},
      {"ring_shift",
       [](Call& call) {
         return call.one<1>([](Array x) {
           std::vector<std::pair<int, int>> right;
           for (int k = 0; k < 8; ++k) right.emplace_back(k, (k + 1) % 8);
           return ppermute(x, "i", right);
         });
       }},
      {"all_gather_invariant",
       [](Call& call) {
         return call.one<1>([](Array x) { return all_gather_invariant(x, "i", {.tiled = true}); });
       }},
      {"all_to_all_resharding",
       [](Call& call) {
         const std::string axis = call.params().text("axis");
         return call.one<1>([axis](Array x) { return all_to_all(x, axis, 1, 0, {.tiled = true}); });
       }},
      {"all_to_all_columns",
       [](Call& call) {
         const std::string axis = call.params().text("axis");
         return call.one<1>([axis](Array x) {
           return all_to_all(reshape(x, {1, x.size()}), axis, 1, 1, {.tiled = true});
         });
       }},
      {"partial_products",
       [](Call& call) {
         return call.one<2>([](Array a, Array b) { return expand_dims(matmul(a, b), 0); });
       }},
      {"partial_products_reduced",
       [](Call& call) {
         return call.one<2>([](Array a, Array b) { return psum(matmul(a, b), "y"); });
       }},
      {"reduce_scatter_over_y",
       [](Call& call) {
         return call.one<2>([](Array a, Array b) {
           return psum_scatter(matmul(a, b), "y", {.scatter_dimension = 0, .tiled = true});
         });
       }},
      {"reduce_scatter_over_zy",
       [](Call& call) {
         return call.one<2>([](Array a, Array b) {
           return psum_scatter(matmul(a, b), {"z", "y"}, {.scatter_dimension = 0, .tiled = true});
         });
       }},
      {"all_reduce_is_scatter_then_gather",
       [](Call& call) {
         return call.several<1>([](Array x) {
           const Array part = psum_scatter(x, "i", {.tiled = true});
           return Arrays{psum(x, "i"), all_gather(part, "i", {.tiled = true})};
         });
       }},
      {"automatic_axes",
       [](Call& call) {
         if (call.params().texts("axis_names").size() == 1)
           return call.one<2>([](Array a, Array b) { return psum(matmul(a, b), "i"); });
         return call.one<2>([](Array a, Array b) {
           return psum_scatter(matmul(a, b), "y", {.scatter_dimension = 0, .tiled = true});
         });
       }},
      {"nested",
       [](Call& call) {
         const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
         return call.one<1>([mesh](Array p) {
           const auto over_j = [](Array q) { return psum(q, "j"); };
           return shard_map(over_j, mesh, P(none, "j"), P())(p) + astype(axis_index("i"), f32);
         });
       }},
      {"repeated_psum",
       [](Call& call) { return call.one<1>([](Array x) { return psum(psum(x, "i"), "i"); }); }},
      {"pmax", [](Call& call) { return call.one<1>([](Array x) { return pmax(x, "i"); }); }},
      {"pmin", [](Call& call) { return call.one<1>([](Array x) { return pmin(x, "i"); }); }},
      {"pmean", [](Call& call) { return call.one<1>([](Array x) { return pmean(x, "i"); }); }},
      {"axis_index",
       [](Call& call) {
         if (!call.params().has("axes"))
           return call.one<0>([] { return reshape(axis_index("i"), {1}); });
         const Axes axes(call.params().texts("axes"));
         return call.one<0>([axes] { return reshape(axis_index(axes), {1, 1}); });
       }},
      {"psum_of_axis_index_decides",
       [](Call& call) {
         return call.one<0>([]() -> Array {
           if (psum(axis_index("i"), "i") > 0) return full({}, 1.f);
           return full({}, 0.f);
         });
       }},
      {"control_flow",
       [](Call& call) {
         return call.one<1>([](Array x) {
           if (psum(sum(x), {"x", "y"}) < 0) return x;
           return -x;
         });
       }},
      {"static_psum",
       [](Call& call) {
         return call.one<1>([](Array x) {
           const int devices = psum(1, {"i", "j"});
           return x * devices;
         });
       }},
      {"fan_out",
       [](Call& call) { return call.one<1>([](Array x) { return pbroadcast(x, "i"); }); }},
      {"closure_is_an_argument",
       [](Call& call) {
         return call.one<2>([](Array x, Array w) { return sum(sin(x * w), {0}, true); });
       }},
      {"joined_variance",
       [](Call& call) { return call.one<2>([](Array x, Array y) { return x + y; }); }},
      {"trees",
       [](Call& call) {
         return call.several<3>([](Array x, Array y, Array z) {
           return Arrays{x * 2, psum(y, "i"), y + z};
         });
       }},
      {"bf16_inside",
       [](Call& call) {
         return call.one<1>([](Array x) { return astype(psum(astype(x, bf16), "i"), f32); });
       }},
      {"data_parallel_loss",
       [](Call& call) {
         return call.one<4>([](Array w0, Array w1, Array x, Array y) {
           const Array hidden = relu(matmul(x, w0));
           return pmean(mean(sum(square(matmul(hidden, w1) - y), 1)), "batch");
         });
       }},
      {"collective_matmul", [](Call& call) { return call.one<2>(ring_matmul); }},
  };
  return table;
}

// The host decides in their bodies, on values that a traced body does not have.
const std::set<std::string> decided_by_the_host = {"psum_of_axis_index_decides", "control_flow"};

void expect_values_and_types(bool under_jit) {
  std::set<std::string> seen;
  for (const GoldenCase& c : testing::load_golden("shard_map")) {
    if (c.params.has("op") || !c.params.has("in_specs")) continue;
    SCOPED_TRACE(c.name);
    const std::string name = c.name.substr(0, c.name.find('/'));
    seen.insert(name);
    try {
      Call call(c, under_jit);
      if (under_jit && decided_by_the_host.count(name)) {
        EXPECT_THROW(programs().at(name)(call), TypeError);
        continue;
      }
      const Arrays got = programs().at(name)(call);
      ASSERT_EQ(got.size(), c.outputs.size());
      const int ulp = static_cast<int>(c.params.integer_or("ulp", 0));
      for (std::size_t k = 0; k < got.size(); ++k)
        EXPECT_EQ(testing::golden_diff(c.outputs[k], got[k], ulp), "") << "result " << k;
      if (c.params.has("types")) {
        EXPECT_EQ(call.types(), c.params.texts("types"));
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw: " << e.what();
    }
  }
  EXPECT_EQ(seen.size(), programs().size());
}

TEST(GoldenShardMap, ValuesAndTypes) { expect_values_and_types(false); }
TEST(GoldenShardMap, TheSameUnderJit) { expect_values_and_types(true); }

// The product of two aranges in i32, which wraps around: corners of the full-size result.
TEST(GoldenShardMap, CollectiveMatmulOfFullSizeWrapsAround) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  if (devices && std::string(devices) != "cpu:8/8")
    GTEST_SKIP()
        << "slow under sanitizers: runs only on devices that copy blocks between memory spaces";
  for (const GoldenCase& c : testing::load_golden("shard_map")) {
    if (c.name != "collective_matmul/corners") continue;
    const auto sizes = c.params.ints("sizes");
    const std::int64_t m = sizes.at(0), k = sizes.at(1), n = sizes.at(2);
    const auto mapped =
        shard_map(ring_matmul, make_mesh({8}, {"i"}), {P("i", none), P(none, "i")}, P(none, "i"));
    const Array product =
        mapped(reshape(arange(m * k, i32), {m, k}), reshape(arange(k * n, i32), {k, n}));
    const auto rows = c.params.ints("rows"), columns = c.params.ints("columns");
    const std::vector<std::int32_t> got = product.to_vector<std::int32_t>();
    for (std::size_t e = 0; e < rows.size(); ++e)
      EXPECT_EQ(got[static_cast<std::size_t>(rows[e] * n + columns[e])],
                c.outputs.at(0).data<std::int32_t>()[e])
          << "at [" << rows[e] << ", " << columns[e] << "]";
    return;
  }
  FAIL() << "the case is absent";
}

// "psum: f32[3]{i} -> f32[3]": what each collective makes of a type, on a mesh with i = 8.
TEST(GoldenShardMap, TypingTable) {
  using Body = Array (*)(const Array&);
  const std::map<std::string, Body> bodies = {
      {"psum", [](const Array& x) { return psum(x, "i"); }},
      {"pbroadcast", [](const Array& x) { return pbroadcast(x, "i"); }},
      {"all_to_all", [](const Array& x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); }},
      {"axis_index", [](const Array&) { return axis_index("i"); }},
      {"psum_scatter", [](const Array& x) { return psum_scatter(x, "i", {.tiled = true}); }},
      {"all_gather", [](const Array& x) { return all_gather(x, "i", {.tiled = true}); }},
      {"all_gather_invariant",
       [](const Array& x) { return all_gather_invariant(x, "i", {.tiled = true}); }},
      {"pscatter", [](const Array& x) { return pscatter(x, "i", {.tiled = true}); }},
      {"ppermute",
       [](const Array& x) {
         return ppermute(x, "i", {{0, 1}});
       }},
      {"pmax", [](const Array& x) { return pmax(x, "i"); }},
      {"add_joined", [](const Array& x) { return x + astype(axis_index("i"), f32); }},
      {"mul_invariant", [](const Array& x) { return x * x; }},
      {"sum", [](const Array& x) { return sum(x); }},
  };
  for (const GoldenCase& c : testing::load_golden("shard_map")) {
    if (c.name != "types") continue;
    const Mesh mesh = testing::case_mesh(c);
    const auto rows = c.params.texts("rows");
    EXPECT_EQ(rows.size(), bodies.size());
    for (const std::string& row : rows) {
      SCOPED_TRACE(row);
      const std::string name = row.substr(0, row.find(':'));
      const std::string from = row.substr(name.size() + 2, row.find(" ->") - name.size() - 2);
      const std::int64_t block = std::stoll(from.substr(4));
      const bool varies = from.find("{i}") != std::string::npos;
      std::string found;
      const auto body = [&](Array x) {
        found = name + ": " + to_string(x.type()) + " -> ";
        found += to_string(bodies.at(name)(x).type());
        return zeros({});
      };
      const auto mapped = shard_map(body, mesh, {varies ? P("i") : P()}, P());
      EXPECT_NO_THROW(mapped(zeros({varies ? 8 * block : block})));
      EXPECT_EQ(found, row);
    }
    return;
  }
  FAIL() << "the case 'types' is absent";
}

}  // namespace
}  // namespace shmap
