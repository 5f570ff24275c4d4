// shmap-test: devices
// Attention in programs: what is found and what is left alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/compiler/find_attention/find_attention.h"
#include "core/compiler/passes/simplify.h"
#include "core/ops/attention.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr float kInf = std::numeric_limits<float>::infinity();

bool takes_all(const AttentionForm&) { return true; }
bool takes_eights(const AttentionForm& form) {
  return form.dtype == f32 || (form.depth % 8 == 0 && form.v_depth % 8 == 0);
}

// A function of operands of these types as a simplified program, in the form that jit has.
template <class F>
JaxprRef simplified(F f, const std::vector<ShapedArray>& t) {
  const ClosedJaxpr j = t.size() == 3 ? make_jaxpr([&](Array q, Array k, Array v) {
    return f({q, k, v});
  })(t[0], t[1], t[2])
                        : t.size() == 4
                            ? make_jaxpr([&](Array q, Array k, Array v, Array x) {
                                return f({q, k, v, x});
                              })(t[0], t[1], t[2], t[3])
                            : make_jaxpr([&](Array q, Array k, Array v, Array x, Array y) {
                                return f({q, k, v, x, y});
                              })(t[0], t[1], t[2], t[3], t[4]);
  return simplify(*j.impl().jaxpr);
}

using Arrays = std::vector<Array>;

// The equations that remain of a program of one attention, as text.
template <class F>
std::string found(F f, const std::vector<ShapedArray>& types, AttentionCheck takes = takes_all) {
  const JaxprRef made = find_attention(*simplified(f, types), takes);
  typecheck_jaxpr(*made);
  std::string text;
  for (const Eqn& e : made->eqns)
    text += (text.empty() ? "" : "; ") + std::string(e.primitive->name) + "[" +
            to_string(*e.params) + "]";
  return text;
}

template <class F>
bool finds_none(F f, const std::vector<ShapedArray>& types, AttentionCheck takes = takes_all) {
  const JaxprRef before = simplified(f, types);
  return find_attention(*before, takes) == before;
}

std::vector<ShapedArray> three(const Shape& shape, DType dtype = f32) {
  return std::vector<ShapedArray>(3, ShapedArray(shape, dtype));
}
std::vector<ShapedArray> and_also(std::vector<ShapedArray> types, const ShapedArray& t) {
  types.push_back(t);
  return types;
}

Array columns(int n) { return arange(n); }
Array rows(int n) { return reshape(arange(n), {n, 1}); }

// ---- what is found

TEST(FindAttention, AsTransformersWriteIt) {
  const auto f = [](const Arrays& x) {
    Array s = einsum("bqhd,bkhd->bhqk", x[0], x[1]) * 0.25f;
    s = where(rows(24) >= columns(24), s, -1e30f);
    return einsum("bhqk,bkhd->bqhd", softmax(s), x[2]);
  };
  EXPECT_EQ(found(f, three({2, 24, 4, 16})),
            "attention[causal_offset=0 k_dims=(0, 2, 1, 3) masked=-1e+30 out_dims=(0, 2, 1, 3) "
            "out_dtype=float32 q_dims=(0, 2, 1, 3) scale=0.25 v_dims=(0, 2, 1, 3)]");
  EXPECT_THAT(found(f, three({2, 24, 4, 16}, bf16)), HasSubstr("out_dtype=bfloat16"));
  EXPECT_THAT(found(f, three({2, 24, 4, 16}, f16)), HasSubstr("masked=-inf"));  // of f16
}

TEST(FindAttention, HeadsBeforeRows) {
  EXPECT_EQ(found(
                [](const Arrays& x) {
                  const Array s = einsum("bhqd,bhkd->bhqk", x[0], x[1]) / 4.f;
                  return einsum("bhqk,bhkd->bhqd", softmax(s), x[2]);
                },
                three({2, 4, 24, 16}, bf16)),
            "attention[k_dims=(0, 1, 2, 3) out_dims=(0, 1, 2, 3) out_dtype=bfloat16 "
            "q_dims=(0, 1, 2, 3) scale=0.25 v_dims=(0, 1, 2, 3)]");
}

// The types of a mapped body vary, and the mask is cast to what it is selected from.
TEST(FindAttention, BlocksThatVary) {
  const Mesh mesh = make_mesh({2, 4}, {"i", "j"});
  const P spec("i", none, "j");
  const auto mapped = shard_map(
      [](Array q, Array k, Array v, Array bias, Array keep) {
        Array s = einsum("bqhd,bkhd->bhqk", q, k) + bias;
        s = where(keep, where(rows(12) >= columns(12), s, -kInf), -kInf);
        return einsum("bhqk,bkhd->bqhd", softmax(s), v);
      },
      mesh, {spec, spec, spec, P(), P("i")}, spec);
  const ShapedArray t({4, 12, 8, 16}, f32);
  const ClosedJaxpr j =
      make_jaxpr(mapped)(t, t, t, ShapedArray({12}, f32), ShapedArray({4, 1, 1, 12}, bool_));
  const std::vector<const Jaxpr*> bodies = inner_jaxprs(*j.impl().jaxpr->eqns.at(0).params);
  const JaxprRef made = find_attention(*simplify(*bodies.at(0)), takes_all);
  typecheck_jaxpr(*made);
  const std::string text = to_string(*made);
  EXPECT_THAT(text, HasSubstr("attention[bias_dims=(-1, -1, -1, 0) causal_offset=0"));
  EXPECT_THAT(text, HasSubstr("mask_dims=(0, -1, -1, 3)"));
  EXPECT_THAT(text, Not(HasSubstr("iota")));
}

// Transpositions of operands and of the result go; so does the f32 between products of halves.
TEST(FindAttention, ProductsOfMatricesWithConversions) {
  EXPECT_EQ(found(
                [](const Arrays& x) {
                  const Array q = swapaxes(x[0], 1, 2), k = swapaxes(x[1], 1, 2),
                              v = swapaxes(x[2], 1, 2);
                  Array s = astype(matmul(q, swapaxes(k, -1, -2)), f32) * 0.25f;
                  return swapaxes(matmul(astype(softmax(s), bf16), v), 1, 2);
                },
                three({2, 24, 4, 16}, bf16)),
            "attention[k_dims=(0, 2, 1, 3) out_dims=(0, 2, 1, 3) out_dtype=bfloat16 "
            "q_dims=(0, 2, 1, 3) scale=0.25 v_dims=(0, 2, 1, 3)]");
}

TEST(FindAttention, WithoutBatchDimsAndWrittenByHand) {
  const auto f = [](const Arrays& x) {
    const Array s = matmul(x[0], transpose(x[1]));
    const Array e = exp(s - stop_gradient(max(s, -1, true)));
    return matmul(e / sum(e, -1, true), x[2]);
  };
  EXPECT_EQ(found(f, three({24, 16})),
            "attention[k_dims=(0, 1) out_dims=(0, 1) out_dtype=float32 q_dims=(0, 1) scale=1 "
            "v_dims=(0, 1)]");
}

// k first, and the weights on the right: what lies how is said by dims alone.
TEST(FindAttention, OperandsOfProductsTheOtherWayRound) {
  EXPECT_EQ(
      found(
          [](const Arrays& x) {
            const Array s = einsum("kd,qd->kq", x[1], x[0]) * 2.f;
            return transpose(einsum("kd,kq->dq", x[2], softmax(s, 0)));
          },
          {ShapedArray({24, 16}, f32), ShapedArray({40, 16}, f32), ShapedArray({40, 8}, f32)}),
      "attention[k_dims=(0, 1) out_dims=(0, 1) out_dtype=float32 q_dims=(0, 1) scale=2 "
      "v_dims=(0, 1)]");
}

TEST(FindAttention, ABiasAndAMaskWithoutWhatRepeatsThem) {
  const auto f = [](const Arrays& x) {
    Array s = einsum("bqhd,bkhd->bhqk", x[0], x[1]) * 0.25f + x[3];
    s = where(x[4], s, -kInf);
    return einsum("bhqk,bkhd->bqhd", softmax(s), x[2]);
  };
  std::vector<ShapedArray> t = and_also(three({2, 24, 4, 16}), ShapedArray({4, 1, 24}, f32));
  t = and_also(t, ShapedArray({2, 1, 1, 24}, bool_));
  EXPECT_EQ(found(f, t),
            "attention[bias_dims=(-1, 0, -1, 2) k_dims=(0, 2, 1, 3) mask_dims=(0, -1, -1, 3) "
            "masked=-inf out_dims=(0, 2, 1, 3) out_dtype=float32 q_dims=(0, 2, 1, 3) scale=0.25 "
            "v_dims=(0, 2, 1, 3)]");
}

TEST(FindAttention, MasksOfPositions) {
  const auto with = [](auto mask) {
    return [mask](const Arrays& x) {
      const Array s = matmul(x[0], transpose(x[1]));
      return matmul(softmax(mask(s)), x[2]);
    };
  };
  const auto text = [&](auto mask) { return found(with(mask), three({24, 16})); };
  EXPECT_THAT(text([](Array s) { return where(rows(24) + 3 >= columns(24), s, -kInf); }),
              HasSubstr("causal_offset=3 "));
  EXPECT_THAT(text([](Array s) { return where(columns(24) < rows(24) - 1.f, s, -kInf); }),
              HasSubstr("causal_offset=-2 "));
  EXPECT_THAT(text([](Array s) { return where(columns(24) > rows(24), -1e9f, s); }),
              HasSubstr("causal_offset=0 "));
  EXPECT_THAT(text([](Array s) {
                const Array i = arange(24);
                return where(logical_not(expand_dims(i, 0) - expand_dims(i, 1) > 0), s, -1e9f);
              }),
              HasSubstr("causal_offset=0 "));
  // A mask of another kind is read, like any mask.
  EXPECT_THAT(text([](Array s) { return where(rows(24) <= columns(24), s, -kInf); }),
              HasSubstr("mask_dims=(0, 1)"));
  EXPECT_THAT(text([](Array s) { return where(columns(24) < 20.f, s, -kInf); }),
              HasSubstr("mask_dims=(-1, 0)"));
  EXPECT_THAT(text([](Array s) { return where(rows(24) * 2.f >= columns(24), s, -kInf); }),
              HasSubstr("mask_dims=(0, 1)"));
}

TEST(FindAttention, ACausalMaskAndAnother) {
  const auto t = and_also(three({2, 24, 4, 16}), ShapedArray({2, 24}, bool_));
  const auto with = [](auto mask) {
    return [mask](const Arrays& x) {
      const Array s = einsum("bqhd,bkhd->bhqk", x[0], x[1]);
      const Array padding = expand_dims(x[3], {1, 2});
      return einsum("bhqk,bkhd->bqhd", softmax(mask(s, padding)), x[2]);
    };
  };
  for (const std::string& text :
       {found(with([](Array s, Array padding) {
                return where(logical_and(rows(24) >= columns(24), padding), s, -1e30f);
              }),
              t),
        found(with([](Array s, Array padding) {
                return where(padding, where(rows(24) >= columns(24), s, -1e30f), -1e30f);
              }),
              t)}) {
    EXPECT_THAT(text, HasSubstr("causal_offset=0 "));
    EXPECT_THAT(text, HasSubstr("mask_dims=(0, -1, -1, 1)"));
    EXPECT_THAT(text, Not(HasSubstr("select_n")));
  }
}

TEST(FindAttention, ACausalMaskAndAScalar) {
  const auto with = [](auto mask) {
    return [mask](const Arrays& x) {
      const Array s = einsum("bqhd,bkhd->bhqk", x[0], x[1]);
      return einsum("bhqk,bkhd->bqhd", softmax(mask(s, x[3])), x[2]);
    };
  };
  const auto t = and_also(three({2, 24, 4, 16}), ShapedArray(Shape(), bool_));
  for (const std::string& text :
       {found(with([](Array s, Array flag) {
                return where(logical_and(rows(24) >= columns(24), flag), s, -1e30f);
              }),
              t),
        found(with([](Array s, Array flag) {
                return where(logical_and(flag, rows(24) >= columns(24)), s, -1e30f);
              }),
              t),
        found(with([](Array s, Array flag) {
                const Array drops = logical_or(rows(24) < columns(24), logical_not(flag));
                return where(drops, -1e30f, s);
              }),
              t)}) {
    EXPECT_THAT(text, HasSubstr("causal_offset=0 "));
    EXPECT_THAT(text, HasSubstr("mask_dims=(-1, -1, -1, -1)"));
  }
}

// Positions and masks that share operands lead to these in 2^30 ways.
TEST(FindAttention, MasksOfManyWaysAreNotFollowedAllTheWay) {
  const auto with = [](auto mask) {
    return [mask](const Arrays& x) {
      const Array s = matmul(x[0], transpose(x[1]));
      return matmul(softmax(where(mask(x[3]), s, -kInf)), x[2]);
    };
  };
  const auto sums = [](const Array&) {
    Array offset = zeros({24, 24});
    for (int i = 0; i < 30; ++i) offset = offset + (offset + 1.f);
    return rows(24) + offset >= columns(24);
  };
  const auto halves = [](const Array& kept) {
    Array mask = kept;
    for (int i = 0; i < 30; ++i) mask = logical_and(mask, logical_and(kept, mask));
    return mask;
  };
  const auto t = and_also(three({24, 16}), ShapedArray({24, 24}, bool_));
  EXPECT_THAT(found(with(sums), t), HasSubstr("mask_dims=(0, 1)"));
  EXPECT_THAT(found(with(halves), t), HasSubstr("mask_dims=(0, 1)"));
}

TEST(FindAttention, MoreBatchDimsThanTwoThatLieOneInTheOther) {
  const auto f = vmap([](Array q, Array k, Array v) {
    const Array s = einsum("bqhd,bkhd->bhqk", q, k);
    return einsum("bhqk,bkhd->bqhd", softmax(s), v);
  });
  EXPECT_THAT(found([&](const Arrays& x) { return f(x[0], x[1], x[2]); }, three({3, 2, 24, 4, 16})),
              HasSubstr("q_dims=(0, 1, 3, 2, 4)"));
}

TEST(FindAttention, EachOfSeveral) {
  const auto attend = [](Array q, Array k, Array v) {
    return matmul(softmax(matmul(q, transpose(k))), v);
  };
  const std::string text = found(
      [&](const Arrays& x) {
        const Array y = attend(x[0], x[1], x[2]);
        return attend(tanh(y), attend(y, x[1], x[1]), x[2]);
      },
      three({24, 16}));
  EXPECT_EQ(text.find("dot_general"), std::string::npos) << text;
}

// ---- near misses

Array attend(Array q, Array k, Array v) {
  return matmul(softmax(matmul(q, swapaxes(k, -1, -2))), v);
}

TEST(FindAttention, NotWhereScoresOrWeightsAreUsedElsewhere) {
  const auto t = three({24, 16});
  EXPECT_TRUE(finds_none(
      [](const Arrays& x) {
        const Array s = matmul(x[0], transpose(x[1]));
        return std::pair{matmul(softmax(s), x[2]), s};
      },
      t));
  EXPECT_TRUE(finds_none(
      [](const Arrays& x) {
        const Array p = softmax(matmul(x[0], transpose(x[1])));
        return std::pair{matmul(p, x[2]), sum(p)};
      },
      t));
  EXPECT_TRUE(finds_none(
      [](const Arrays& x) {
        const Array s = matmul(x[0], transpose(x[1]));
        const Array most = max(s, -1, true), e = exp(s - most);
        return std::pair{matmul(e / sum(e, -1, true), x[2]), most};
      },
      t));
  EXPECT_TRUE(finds_none(
      [](const Arrays& x) {
        return grad([&](Array q) { return sum(attend(q, x[1], x[2])); })(x[0]);
      },
      t));
}

TEST(FindAttention, NotOfAnotherSoftmax) {
  const auto t = three({24, 16});
  const auto none = [&](auto weights) {
    return finds_none(
        [&](const Arrays& x) { return matmul(weights(matmul(x[0], transpose(x[1]))), x[2]); }, t);
  };
  EXPECT_FALSE(none([](Array s) { return softmax(s); }));
  EXPECT_TRUE(none([](Array s) { return softmax(s, 0); }));
  EXPECT_TRUE(none([](Array s) { return softmax(s, {0, 1}); }));
  EXPECT_TRUE(none([](Array s) { return exp(log_softmax(s)); }));
  EXPECT_TRUE(none([](Array s) {
    const Array e = exp(s - min(s, -1, true));
    return e / sum(e, -1, true);
  }));
  EXPECT_TRUE(none([](Array s) {
    const Array e = exp(s - max(s, -1, true));
    return e / sum(e, 0, true);
  }));
  EXPECT_TRUE(none([](Array s) {
    const Array e = exp(s - max(s, -1, true));
    return e / sum(s, -1, true);
  }));
  EXPECT_TRUE(none([](Array s) {  // exp may overflow
    const Array e = exp(s);
    return e / sum(e, -1, true);
  }));
  EXPECT_TRUE(none([](Array s) { return tanh(softmax(s)); }));
  EXPECT_TRUE(none([](Array s) { return softmax(tanh(s)); }));
}

TEST(FindAttention, NotWhereScalesBiasesAndMasksAreInAnotherOrder) {
  std::vector<ShapedArray> t = and_also(three({24, 16}), ShapedArray({24, 24}, f32));
  t = and_also(t, ShapedArray({24, 24}, bool_));
  const auto none = [&](auto change) {
    return finds_none(
        [&](const Arrays& x) {
          return matmul(softmax(change(matmul(x[0], transpose(x[1])), x[3], x[4])), x[2]);
        },
        t);
  };
  EXPECT_FALSE(none([](Array s, Array b, Array m) { return where(m, s * 2.f + b, -1.f); }));
  EXPECT_TRUE(none([](Array s, Array b, Array) { return (s + b) * 2.f; }));
  EXPECT_TRUE(none([](Array s, Array b, Array) { return s + b + transpose(b); }));
  EXPECT_TRUE(none([](Array s, Array b, Array m) { return where(m, s, -1.f) + b; }));
  EXPECT_TRUE(none([](Array s, Array, Array m) { return where(m, s, -1.f) * 2.f; }));
  EXPECT_TRUE(none([](Array s, Array b, Array m) { return where(m, s, b); }));
  EXPECT_TRUE(none([](Array s, Array, Array m) { return where(m, -1.f, s); }));
  EXPECT_TRUE(
      none([](Array s, Array, Array m) { return where(m, where(transpose(m), s, -1.f), -2.f); }));
  EXPECT_TRUE(none([](Array s, Array, Array) { return s * -2.f; }));
  EXPECT_TRUE(none([](Array s, Array b, Array) { return s * b; }));
}

TEST(FindAttention, NotOfOtherDtypesAndDepths) {
  const auto f = [](const Arrays& x) { return attend(x[0], x[1], x[2]); };
  EXPECT_TRUE(finds_none(f, three({24, 16}, f64)));
  EXPECT_TRUE(finds_none(f, three({24, 16}, i32)));
  EXPECT_TRUE(finds_none(f, three({24, 12}, bf16), takes_eights));
  EXPECT_FALSE(finds_none(f, three({24, 16}, bf16), takes_eights));
  EXPECT_TRUE(finds_none(f, three({24, 16}), nullptr));
  EXPECT_TRUE(finds_none(
      [](const Arrays& x) {
        const Array p = softmax(matmul(x[0], transpose(x[1])));
        return matmul(astype(p, f32), x[2]);
      },
      {ShapedArray({24, 16}, bf16), ShapedArray({24, 16}, bf16), ShapedArray({24, 16}, f32)}));
  EXPECT_TRUE(finds_none(f, three({0, 16})));
}

TEST(FindAttention, NotWhereOperandsDoNotLieAsKernelsReadThem) {
  // Queries of groups of heads that share keys.
  EXPECT_TRUE(finds_none(
      [](const Arrays& x) {
        const Array s = einsum("bqhgd,bkhd->bhgqk", x[0], x[1]);
        return einsum("bhgqk,bkhd->bqhgd", softmax(s), x[2]);
      },
      {ShapedArray({2, 24, 2, 3, 16}, f32), ShapedArray({2, 24, 2, 16}, f32),
       ShapedArray({2, 24, 2, 16}, f32)}));
  // Three batch dims that are not adjacent.
  EXPECT_TRUE(finds_none(
      [](const Arrays& x) {
        const Array s = einsum("aqbrcd,akbrcd->abcrqk", x[0], x[1]);
        return einsum("abcrqk,akbrcd->aqbrcd", softmax(s), x[2]);
      },
      three({2, 24, 2, 3, 2, 16})));
  // Features that are not adjacent.
  EXPECT_TRUE(finds_none(
      [](const Arrays& x) {
        return einsum("qk,dk->qd", softmax(einsum("dq,dk->qk", x[0], x[1])), x[2]);
      },
      three({16, 24})));
}

}  // namespace
}  // namespace shmap
