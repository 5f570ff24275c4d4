// shmap-test: devices
// Every primitive that a public function makes, read back from the text of a program of it: those
// without parameters on operands of some dtype, the others from the function that makes them;
// overlapped products in every form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "core/ir/jaxpr.h"
#include "core/ir/primitive.h"
#include "core/ir/trace.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using extend::parse_jaxpr;
using test::expect_error;
using testing::HasSubstr;

using Body = std::function<Array(Array)>;

// The names of its primitives, and of those inside.
void collect(const std::vector<extend::Eqn>& eqns, std::set<std::string>& names) {
  for (const extend::Eqn& e : eqns) {
    names.insert(e.primitive());
    for (const ClosedJaxpr& inner : e.sub_jaxprs()) collect(extend::eqns(inner), names);
  }
}

std::set<std::string> read_back(const ClosedJaxpr& jaxpr,
                                const extend::ParseOptions& options = {}) {
  const std::string text = to_string(jaxpr);
  EXPECT_EQ(to_string(parse_jaxpr(text, options)), text);
  std::set<std::string> names;
  collect(extend::eqns(jaxpr), names);
  return names;
}

// A program of one equation without parameters; empty where it takes none of the dtypes.
std::set<std::string> read_back_plain(const Primitive& p, const ParamSyntax& syntax) {
  for (const DType dtype : {f32, i32, DType::bool_, u32, DType::prng_key}) {
    std::vector<ShapedArray> types(static_cast<std::size_t>(syntax.min_operands),
                                   ShapedArray({4, 2}, dtype));
    for (const DType last : {dtype, i32, u32}) {
      for (const DType first : {dtype, DType::bool_}) {
        types.front() = ShapedArray({4, 2}, first);
        types.back() = ShapedArray({4, 2}, types.size() > 1 ? last : first);
        try {
          extend::JaxprBuilder b;
          std::vector<extend::Atom> in;
          for (const ShapedArray& t : types) in.push_back(b.input(t));
          const std::vector<extend::Var> out = b.eqn(p.name, extend::Atoms(in));
          return read_back(b.build(out));
        } catch (const Error&) {
        }
      }
    }
  }
  return {};
}

std::vector<Body> global_programs() {
  const auto start = [](Array v) { return astype(sum(v), i32); };
  return {
      [](Array v) { return sum(astype(bitcast(v, u32), f64), 0); },
      [](Array v) {
        return reshape(v, {2, 16}) + broadcast_to(v[0], {2, 4})[{0, 0}];
      },
      [](Array v) { return transpose(flip(v, 0)) + arange(8.f); },
      [](Array v) {
        return concatenate({v, pad(v, {{1, 1}, {0, 0}})}, 0);
      },
      [](Array v) {
        return v[{range(0, 8, 2), range(1, 3)}];
      },
      [start](Array v) {
        return dynamic_slice(v, {start(v), 0}, {2, 2});
      },
      [start](Array v) {
        return dynamic_update_slice(v, ones({1, 1}), {start(v), 0});
      },
      [](Array v) { return sort(v, 0) + astype(argmax(v, 0) + argmin(v, 0), f32); },
      [](Array v) { return top_k(v, 2).first; },
      [](Array v) { return cumsum(v, 0) + cumprod(v, 0) + cummax(v, 1); },
      [](Array v) { return cummin(v, 0) + cumlogsumexp(v, 1); },
      [](Array v) { return sum(v) + prod(v) + max(v) + min(v); },
      [](Array v) { return where(any(v > 0.f), astype(all(v > 0.f), f32), 1.f); },
      [](Array v) { return matmul(v, transpose(v)); },
      [](Array v) {
        return v[array<int>({0, 3, 1}, {3})];
      },
      [](Array v) {
        const Array rows = array<int>({0, 3}, {2});
        return v.at(rows)
            .set(1.f)
            .at(rows)
            .add(2.f)
            .at(rows)
            .mul(3.f)
            .at(rows)
            .min(1.f)
            .at(rows)
            .max(2.f);
      },
      [](Array v) { return clip(v, 0.f, 1.f) + stop_gradient(v); },
      [](Array v) { return jit([](Array u) { return cos(u); })(v); },
      [](Array v) {
        return grad([](Array w) { return sum(checkpoint([](Array u) { return cos(u); })(w)); })(v);
      },
      [](Array v) { return checkpoint([](Array u) { return cos(u); })(v); },
      [](Array v) {
        return while_loop([](Array c) { return sum(c) < 9.f; }, [](Array c) { return c + 1.f; }, v);
      },
      [](Array v) {
        return fori_loop(
            0, 3, [](Array, Array c) { return cos(c); }, v);
      },
      [](Array v) {
        return cond(
            sum(v) > 0.f, [](Array u) { return u; }, [](Array u) { return -u; }, v);
      },
      [](Array v) {
        debug::print("{}", v);
        return v;
      },
      [](Array v) {
        const auto f = custom_jvp([](Array u) { return sin(u); },
                                  [](std::tuple<Array> x, std::tuple<Array> t) {
                                    return std::pair{sin(std::get<0>(x)), std::get<0>(t)};
                                  });
        const auto g = custom_vjp([](Array u) { return sin(u); },
                                  [](Array u) {
                                    return std::pair{sin(u), u};
                                  },
                                  [](Array, Array bar) { return std::tuple{bar}; });
        return f(v) + g(v);
      },
      [](Array v) {
        const auto [a, b] = random::split<2>(random::fold_in(random::key(astype(sum(v), i32)), 3));
        const Array words = extend::random_unwrap(a);
        return random::uniform(extend::random_wrap(words), {4, 2}) +
               random::gamma(b, abs(v[0][0]), {4, 2}) +
               astype(extend::threefry_2x32(words, astype(reshape(v, {32}), u32))[0], f32);
      },
  };
}

// Bodies on a mesh of i: 4, j: 2 with blocks f32[2,2].
std::vector<Body> bodies() {
  return {
      [](Array v) { return psum(v, "i"); },
      [](Array v) { return pmax(v, "i") + pmin(v, axes("i", "j")); },
      [](Array v) { return pbroadcast(psum(v, axes("i", "j")), "i"); },
      [](Array v) { return all_gather(v, "i"); },
      [](Array v) { return all_gather_invariant(v, "i", {.tiled = true}); },
      [](Array v) { return psum_scatter(v, "j", {.tiled = true}); },
      [](Array v) { return pscatter(psum(v, "j"), "j", {.tiled = true}); },
      [](Array v) {
        return ppermute(v, "i", {{0, 1}, {1, 0}});
      },
      [](Array v) { return all_to_all(v, "j", 0, 1, {.tiled = true}); },
      [](Array v) { return broadcast_from(v, "i", 2); },
      [](Array v) { return v + astype(axis_index("i"), f32); },
  };
}

TEST(ParsePrimitives, EachThatAPublicFunctionMakes) {
  ensure_started();
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const ShapedArray whole({8, 4}, f32);
  std::set<std::string> seen;
  const auto see = [&](const ClosedJaxpr& jaxpr) {
    SCOPED_TRACE(to_string(jaxpr));
    seen.merge(read_back(jaxpr, {.mesh = mesh}));
  };
  for (const Body& f : global_programs()) see(make_jaxpr(f)(whole));
  see(make_jaxpr([&](Array v) {
    const NamedSharding rows(mesh, P("i"));
    return device_put(with_sharding_constraint(v, rows) * 2.f, rows);
  })(whole));
  for (const Body& f : bodies()) {
    see(make_jaxpr(shard_map(
        [&](Array v) {
          return f(v)[{none, none}];
        },
        mesh, P("i", "j"), P("i", "j")))(whole));
  }

  for (const Primitive* p : all_primitives()) {
    SCOPED_TRACE(p->name);
    const ParamSyntax& syntax = p->syntax;
    if (syntax.refused) {
      // Only plans have these primitives.
      EXPECT_THAT((std::set<std::string>{"product", "product_into", "fused", "fused_columns",
                                         "gather_reduce", "concatenate_slices", "placed_slice",
                                         "flow_task", "branch_task"}),
                  testing::Contains(p->name));
      continue;
    }
    if (seen.count(p->name) == 0 && !syntax.read) seen.merge(read_back_plain(*p, syntax));
    // Primitives of other tests' programs, and primitives that no public function makes.
    const std::set<std::string> elsewhere = {
        "all_gather_einsum", "einsum_psum_scatter", "all_to_all_einsum",    "einsum_all_to_all",
        "custom_vjp_linear", "assume_equal",        "optimization_barrier", "attention",
        "attention_tangent", "attention_grad",
    };
    if (elsewhere.count(p->name) == 0) {
      EXPECT_EQ(seen.count(p->name), 1u) << "make a program of it";
    }
  }
}

// ---- overlapped products

// Reads a program back and compares its results with those of the original.
void expect_read_back(const ClosedJaxpr& jaxpr, const std::vector<Array>& args) {
  const std::string text = to_string(jaxpr);
  SCOPED_TRACE(text);
  const ClosedJaxpr read = parse_jaxpr(text);
  EXPECT_EQ(to_string(read), text);
  const std::vector<Array> want = eval_jaxpr(jaxpr, args), got = eval_jaxpr(read, args);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>()) << i;
}

TEST(ParseOverlapped, ProductsInEveryForm) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array a = reshape(arange(64.f), {8, 8}) * 0.125f, b = cos(a);
  using Product = std::function<Array(Array, Array, Overlap)>;
  const std::vector<Product> products = {
      [](Array x, Array y, Overlap form) {
        return all_gather_einsum("ab,bc->ac", x, y, "i", {.form = form});
      },
      [](Array x, Array y, Overlap form) {
        return all_gather_einsum("ab,bc->ca", x, y, "i", {.operand = 1, .axis = 1, .form = form});
      },
      [](Array x, Array y, Overlap form) {
        return einsum_psum_scatter("ab,bc->ac", x, y, "i", {.scatter_dimension = 1, .form = form});
      },
      [](Array x, Array y, Overlap form) {
        return all_to_all_einsum("ab,bc->ac", x, y, "i",
                                 {.operand = 0, .split_axis = 1, .concat_axis = 0, .form = form});
      },
  };
  // Blocks whose shapes fit, by product.
  const std::vector<Specs> specs = {{P("i", none), P()},
                                    {P(), P(none, "i")},
                                    {P(none, "i"), P("i", none)},
                                    {P("i", none), P(none, none)}};
  std::set<std::string> seen;
  for (std::size_t k = 0; k < products.size(); ++k) {
    for (const Overlap form : {Overlap::ring, Overlap::two_rings}) {
      SCOPED_TRACE(k);
      const auto f = [&](Array x, Array y) {
        const Array z = k == 3 ? y[{range(0, 2), range()}] : y;
        return psum(products[k](x, z, form), "j");
      };
      const auto loss = [&](Array x, Array y) { return sum(square(f(x, y))); };
      const auto g = shard_map(
          [&](Array x, Array y) {
            const auto [x_bar, y_bar] = grad<0, 1>(loss)(x, y);
            return f(x, y) * 1.f + psum(sum(x_bar) + sum(y_bar), "i");
          },
          mesh, specs[k], P("i"), {.check_vma = true});
      const ClosedJaxpr jaxpr = make_jaxpr(g)(a, b);
      expect_read_back(jaxpr, {a, b});
      collect(extend::eqns(jaxpr), seen);
    }
  }
  for (const char* name :
       {"all_gather_einsum", "einsum_psum_scatter", "all_to_all_einsum", "einsum_all_to_all"})
    EXPECT_EQ(seen.count(name), 1u) << name;
}

TEST(ParseAttention, ScalesThatF32CannotHoldAreRefused) {
  const auto f = [](Array q, Array k, Array v) { return attention(q, k, v, {.scale = 2.0}); };
  const Array x = ones({4, 2, 8});
  const std::string text = to_string(make_jaxpr(f)(x, x, x));
  const std::size_t at = text.find("scale=2 ");
  if (at == text.npos) GTEST_SKIP() << "these devices have no kernel for attention";
  EXPECT_EQ(to_string(parse_jaxpr(text)), text);
  for (const char* other : {"scale=1e-50 ", "scale=1e+50 ", "scale=0 ", "scale=-1 "}) {
    std::string changed = text;
    changed.replace(at, 8, other);
    expect_error<ValueError>([&] { parse_jaxpr(changed); },
                             {"'scale' must be positive and finite in f32"});
  }
}

TEST(ParseOverlapped, ProgramsOfAnotherProductAreRefused) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto f = shard_map(
      [](Array x, Array y) {
        return all_gather_einsum("ab,bc->ac", x, y, "i", {.form = Overlap::ring});
      },
      mesh, {P("i"), P()}, P("i"));
  const std::string text = to_string(make_jaxpr(f)(ones({8, 4}), ones({4, 4})));
  EXPECT_EQ(to_string(parse_jaxpr(text)), text);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const std::size_t at = other.find(from);
    EXPECT_NE(at, other.npos) << from << "\n" << text;
    return other.replace(at, from.size(), to);
  };
  const auto refused = [](const std::string& other, std::initializer_list<const char*> fragments) {
    expect_error<ValueError>([&] { parse_jaxpr(other); }, fragments);
  };
  refused(with("form=ring", "form=two_rings"),
          {"all_gather_einsum: ", "is not the one for the einsum ab,bc->ac in the form two_rings"});
  refused(with("form=ring", "form=rings"), {"'form' is rings", "ring, two_rings"});
  refused(with("spec=ab,bc->ac", "spec=ab,bc->ca"), {"is not the one for the einsum ab,bc->ca"});
  refused(with("spec=ab,bc->ac", "spec=ab,bc->abc"), {"all_gather_einsum: "});
  refused(with("spec=ab,bc->ac", "spec=ab,bd->ac"), {"each dim wants a letter of its own"});
  refused(with("spec=ab,bc->ac", "spec=ab-bc,ac"), {"wanted a spec like ab,bc->ac"});
  refused(with("spec=ab,bc->ac", "spec=abd,bcd->ac"), {"which is not of operands of types"});
  refused(with("all_gather_dimension=0", "all_gather_dimension=2"),
          {"'all_gather_dimension' is 2"});
  refused(with("operand=0", "operand=2"), {"'operand' is 2"});
  refused(with("ppermute", "psum"), {""});
}

TEST(ParseOverlapped, LinearMapsOfCustomRules) {
  // An error's text may show such an equation. Its rule is code, which no text holds.
  const std::string text =
      "{ lambda a:f32[3], b:f32[3] .\n  let c:f32[3] d:f32[] = custom_vjp_linear[bwd=0 num_res=1] "
      "a "
      "b\n  in ( c, d ) }";
  const ClosedJaxpr read = parse_jaxpr(text);
  EXPECT_EQ(to_string(read), text);
  expect_error<TypeError>(
      [&] {
        eval_jaxpr(read, {ones({3}), ones({3})});
      },
      {"forward mode", "custom_vjp"});
  expect_error<ValueError>(
      [] {
        parse_jaxpr(  // a comment inside, so that no other test takes the text for a program
            "{ lambda a:f32[3] .\n  let c:i32[3] = custom_vjp_linear" /* of an i32 */
            "[bwd=0 num_res=1] a\n  in ( c ) }");
      },
      {"a result of type i32[3]"});
  expect_error<ValueError>(
      [] {
        extend::JaxprBuilder b;
        b.eqn("custom_vjp_linear", {b.input(ShapedArray({3}, f32))}, {{"bwd", 0}, {"num_res", 0}});
      },
      {"only linearize can create it"});
}

}  // namespace
}  // namespace shmap
