// shmap-test: devices
// Loops and branches of small steps under jit: one task of the device, with the values, bit for
// bit, that they have eagerly.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device/runtime.h"
#include "core/runtime/flow_task.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kMany = 600;  // trips: too many to be written out

Array numbers(Shape shape) { return sin(reshape(arange(shape.num_elements()), shape)); }

bool runs_tasks() {
  return flow_task_p.kernel(make_mesh({1}, "i").impl()->backend().kind()).run != nullptr;
}

// f has the same results eagerly and under jit, and the plan has `wanted` tasks that are loops or
// branches.
template <class F, class... A>
void expect_tasks(std::size_t wanted, F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  if (!runs_tasks()) return;
  const auto jitted = jit(f);
  jitted(args...);
  const std::string plan = jitted.plan_text();
  std::size_t n = 0;
  for (const char* word : {"flow_task[", "branch_task["})
    for (std::size_t at = plan.find(word); at != plan.npos; at = plan.find(word, at + 1)) ++n;
  EXPECT_EQ(n, wanted) << plan;
}

// Slices at computed offsets: of a table that stays unchanged (read from the table), also as y and
// through views of them; of xs; and of a carry that the trip overwrites, whose old rows are kept.
// Offsets may be negative, or past the end.
TEST(FlowTasks, PartsAtComputedPlaces) {
  const Array ids = remainder(astype(arange(kMany), i32) * 7, 23) - 6;
  const auto rows_of_table = [](Array table, Array ids) {
    return scan(
        [=](Array c, Array k) {
          const Array row = dynamic_index_in_dim(table, k, 0, false);
          const Array pair = dynamic_slice(table, {k, Array(1)}, {2, 5});
          return std::pair{c * 0.5f + row, std::tuple{row, sum(pair), sum(row)}};
        },
        zeros({5}), ids);
  };
  expect_tasks(1, rows_of_table, numbers({11, 5}), ids);
  const auto columns_of_table = [](Array table, Array ids) {
    return scan(
        [=](Array c, Array k) {
          return std::pair{c * 0.5f + dynamic_index_in_dim(table, k, 1, false), Array(0.f)};
        },
        zeros({5}), ids);
  };
  expect_tasks(1, columns_of_table, numbers({5, 11}), ids);
  const auto rows_of_xs = [](Array xs, Array ids) {
    return scan(
        [](Array c, std::pair<Array, Array> x) {
          return std::pair{c + dynamic_index_in_dim(x.first, x.second, 0, false), c};
        },
        zeros({3}), std::pair{xs, ids});
  };
  expect_tasks(1, rows_of_xs, numbers({kMany, 4, 3}), ids);
  const auto rows_that_change_places = [](Array table, Array ids) {
    return scan(
        [](Array c, Array k) {
          const Array one = dynamic_index_in_dim(c, k, 0, true);
          const Array other = dynamic_index_in_dim(c, k + 3, 0, true);
          c = dynamic_update_slice(c, other * 0.5f, {k, Array(0)});
          c = dynamic_update_slice(c, one, {k + 3, Array(0)});
          return std::pair{c, one};
        },
        table, ids);
  };
  expect_tasks(1, rows_that_change_places, numbers({11, 5}), ids);
}

// A task runs a number of trips that divides the length, if there is one close to the best number.
TEST(FlowTasks, NoTripsAreLeftOver) {
  if (!runs_tasks()) GTEST_SKIP() << "these devices do not run loops as tasks";
  const auto f = jit([](Array x) {
    return fori_loop(
        0, 1000, [](Array, Array c) { return c * 0.5f + 1.f; }, x);
  });
  f(numbers({2}));
  EXPECT_THAT(f.plan_text(), HasSubstr("scan of 1000, 25 at a time"));
}

// Short trips run several at a time, and the remaining ones one by one: with all lengths, also if
// carries are swapped, or a y is an x or the unchanged carry.
TEST(FlowTasks, SmallTripsSeveralAtATime) {
  for (const int trips : {599, 600, 601, 677}) {
    for (const bool reverse : {false, true}) {
      const auto f = [=](Array w, Array xs) {
        return scan(
            [=](std::tuple<Array, Array, Array> c, Array x) {
              const auto [a, b, n] = c;
              const Array next = a * 0.5f + b * w;
              return std::pair{std::tuple{b, next + x, n + 1}, std::tuple{a, x, n, next}};
            },
            std::tuple{zeros({3}), ones({3}), Array(0)}, xs, {.reverse = reverse});
      };
      expect_tasks(1, f, numbers({3}), numbers({trips, 3}));
      if (!runs_tasks()) continue;
      const auto jitted = jit(f);
      jitted(numbers({3}), numbers({trips, 3}));
      EXPECT_THAT(jitted.plan_text(), HasSubstr(" at a time"));
    }
  }
  expect_tasks(
      1,
      [](Array x) {
        return fori_loop(
            3, 1010, [x](Array i, Array c) { return c * 0.75f + astype(i, f32) * x; }, x);
      },
      numbers({2}));
}

TEST(FlowTasks, ScansWithCarryXsAndYs) {
  for (const int width : {1, 3, 16, 64}) {  // ys of odd sizes, and of whole cache lines
    for (const bool reverse : {false, true}) {
      expect_tasks(
          1,
          [=](Array w, Array xs) {
            return scan(
                [=](std::pair<Array, Array> c, Array x) {
                  const Array next = tanh(c.first * w + x);
                  return std::pair{std::pair{next, c.second + 1.f}, std::pair{next, sum(next)}};
                },
                std::pair{zeros({width}), Array(0.f)}, xs, {.reverse = reverse});
          },
          numbers({width}), numbers({kMany, width}));
    }
  }
}

// A carry that moves, one that stays as it is, one that is given back as a y, and a constant.
TEST(FlowTasks, CarriesThatChangePlaces) {
  expect_tasks(
      1,
      [](Array a, Array b, Array c) {
        const auto trip = [](std::tuple<Array, Array, Array> s, Array x) {
          const auto& [a, b, c] = s;
          return std::pair{std::tuple{b, a * 0.5f + x, c}, std::tuple{a, c, Array(2.f)}};
        };
        return scan(trip, std::tuple{a, b, c}, sin(arange(kMany)));
      },
      numbers({5}), numbers({5}) * 2.f, numbers({7}));
}

// Values that are views of the carry outlive what overwrites it.
TEST(FlowTasks, ViewsAndReadersOfAnOldCarry) {
  expect_tasks(
      1,
      [](Array x) {
        return fori_loop(
            0, kMany,
            [](Array, Array c) {
              const Array head = c[{range(0, 2)}], flat = reshape(c, {2, 4});
              const Array next = c * 0.99f + 0.01f;
              return concatenate({next[{range(0, 6)}], head}, 0) + 0.1f * sum(flat);
            },
            x);
      },
      numbers({8}));
}

TEST(FlowTasks, UpdatesInPlace) {
  expect_tasks(
      1,
      [](Array table, Array ids) {
        return scan(
            [](Array t, Array k) {
              const Array row = dynamic_index_in_dim(t, k, 0, true);
              const Array next = dynamic_update_slice(t, row * 0.5f + 1.f, {k, 0});
              return std::pair{next, sum(t)};
            },
            table, ids);
      },
      numbers({10, 6}), astype(arange(kMany) % 10.f, i32));
}

TEST(FlowTasks, ProductsSortsAndReductions) {
  expect_tasks(
      1,
      [](Array a, Array x) {
        return fori_loop(
            0, kMany,
            [=](Array i, Array v) {
              const Array w = matmul(a, v);
              return sort(w / (sqrt(sum(square(w))) + 1e-3f)) + astype(i, f32) * 1e-4f;
            },
            x);
      },
      numbers({6, 6}), numbers({6}));
}

TEST(FlowTasks, GradientsOfScans) {
  expect_tasks(
      2,
      [](Array w, Array xs) {
        return grad([&](Array w) {
          const auto [h, ys] = scan(
              [=](Array h, Array x) {
                const Array next = tanh(matmul(h, w) + x);
                return std::pair{next, sum(next)};
              },
              zeros({2, 4}), xs);
          return sum(h) + sum(ys);
        })(w);
      },
      numbers({4, 4}) * 0.3f, numbers({kMany, 2, 4}));
}

TEST(FlowTasks, WhileLoops) {
  expect_tasks(
      1,
      [](Array x) {
        return while_loop([&](auto c) { return max(abs(c.second * c.second - x)) > 1e-5f; },
                          [&](auto c) {
                            return std::pair{c.first + 1, 0.5f * (c.second + x / c.second)};
                          },
                          std::pair{Array(0), x});
      },
      abs(numbers({9})) + 0.5f);
  // None at all.
  expect_tasks(
      1,
      [](Array x) {
        return while_loop([](Array c) { return sum(c) > 1e9f; }, [](Array c) { return c * 2.f; },
                          x);
      },
      numbers({3}));
}

TEST(FlowTasks, BranchesAndClampedIndices) {
  for (const int index : {-7, 0, 1, 2, 9}) {
    expect_tasks(
        1,
        [](Array k, Array x) {
          return switch_(k,
                         std::tuple{[](Array x) {
                                      return std::pair{x * 2.f, sum(x)};
                                    },
                                    [](Array x) {
                                      return std::pair{x, x[1]};
                                    },
                                    [](Array x) {
                                      return std::pair{sin(x), x[0]};
                                    }},
                         x);
        },
        array<std::int32_t>({index}, {}), numbers({5}));
  }
  for (const bool yes : {false, true}) {
    expect_tasks(
        1,
        [](Array p, Array x) {
          return cond(
              p, [](Array x) { return exp(x) + x; }, [](Array x) { return x; }, x);
        },
        array<bool>({yes}, {}), numbers({5}));
  }
}

// Branches of one call each, however long: threads share the one that is chosen.
TEST(FlowTasks, BranchesOfOneCallAreShared) {
  const auto expect_shared = [](auto f, const auto&... args) {
    expect_tasks(1, f, args...);
    if (!runs_tasks()) return;
    const auto jitted = jit(f);
    jitted(args...);
    EXPECT_THAT(jitted.plan_text(), HasSubstr("branch_task[of=one of"));
  };
  for (const int size : {3, 70'001, 1'500'000}) {
    for (const int index : {-1, 0, 1, 2, 3, 9}) {
      SCOPED_TRACE(std::to_string(size) + ", " + std::to_string(index));
      expect_shared(
          [](Array k, Array x, Array y) {
            return switch_(k,
                           std::tuple{[](Array x, Array) { return sin(x); },
                                      [](Array x, Array y) { return exp(x * y) + y; },
                                      [](Array x, Array) { return x; },
                                      [](Array x, Array) { return zeros_like(x); }},
                           x, y);
          },
          array<std::int32_t>({index}, {}), numbers({size}), numbers({size}) * 0.5f);
    }
  }
  // Kernels that share work unlike each other: a copy that is transposed, a gather.
  for (const bool yes : {false, true}) {
    expect_shared(
        [](Array p, Array x, Array ids) {
          return cond(
              p, [](Array x, Array) { return transpose(x); },
              [](Array x, Array ids) { return take(x, ids, 0); }, x, ids);
        },
        array<bool>({yes}, {}), numbers({600, 600}), 599 - arange(600, i32));
  }
}

// Branches of several kernel calls, or of combined partial results, are not shared.
TEST(FlowTasks, BranchesOfSeveralCallsAreNotShared) {
  if (!runs_tasks()) GTEST_SKIP() << "these devices do not run loops and branches as tasks";
  const auto f = [](Array p, Array x) {
    return cond(
        p, [](Array x) { return sort(sin(x)); }, [](Array x) { return x * 2.f; }, x);
  };
  const auto g = [](Array p, Array x) {
    return cond(
        p, [](Array x) { return sum(x); }, [](Array x) { return max(x); }, x);
  };
  for (const int size : {50, 1'000'000}) {
    const Array yes = array<bool>({true}, {}), x = numbers({size});
    expect_same_under_jit(f, Communication::no_more, yes, x);
    expect_same_under_jit(g, Communication::no_more, yes, x);
    const auto sorted = jit(f);
    const auto reduced = jit(g);
    sorted(yes, x);
    reduced(yes, x);
    EXPECT_THAT(sorted.plan_text(), Not(HasSubstr("branch_task[")));
    EXPECT_THAT(reduced.plan_text(), Not(HasSubstr("branch_task[")));
  }
}

TEST(FlowTasks, LoopsInLoopsAreOneTask) {
  expect_tasks(
      1,
      [](Array x) {
        return fori_loop(
            0, kMany,
            [](Array i, Array c) {
              const Array inner = while_loop([](Array v) { return sum(v) < 3.f; },
                                             [](Array v) { return v + 0.5f; }, c);
              return cond(
                  i % 2 == 0, [](Array v) { return v * 0.25f; }, [](Array v) { return -v; }, inner);
            },
            x);
      },
      numbers({4}));
}

// Each device takes its own branch if the predicate varies.
TEST(FlowTasks, DecidedOnEachDevice) {
  const Mesh mesh = make_mesh({8}, "i");
  const auto f = shard_map(
      [](Array x) {
        const Array ended = while_loop([](Array c) { return sum(c) < 20.f; },
                                       [](Array c) { return c * 1.5f + 1.f; }, x);
        return cond(
            sum(x) > 3.f, [](Array v) { return v * 2.f; }, [](Array v) { return v - 1.f; }, ended);
      },
      mesh, P("i"), P("i"));
  expect_tasks(2, f, arange(16));
}

TEST(FlowTasks, CollectivesAndLongTripsStayWithTheHost) {
  if (!runs_tasks()) GTEST_SKIP() << "these devices do not run loops and branches as tasks";
  const Mesh mesh = make_mesh({8}, "i");
  const auto summed = jit(shard_map(
      [](Array x) {
        return fori_loop(
            0, kMany, [](Array, Array c) { return c * 0.1f + psum(sum(c), "i"); }, x);
      },
      mesh, P("i"), P("i")));
  summed(arange(16));
  EXPECT_THAT(summed.plan_text(), Not(HasSubstr("flow_task[")));
  const auto large = jit([](Array x) {
    return fori_loop(
        0, kMany, [](Array, Array c) { return sin(c); }, x);
  });
  large(zeros({1 << 20}));
  EXPECT_THAT(large.plan_text(), Not(HasSubstr("flow_task[")));
}

}  // namespace
}  // namespace shmap::test
