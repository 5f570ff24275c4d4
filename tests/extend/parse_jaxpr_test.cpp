// shmap-test: devices
// Programs read back from their text: every text of this tree's tests (SHMAP_GOLDEN_DIR is their
// folder), random programs, and the errors of invalid texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "collectives/primitives.h"
#include "core/ir/trace.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/random_smooth_body.h"

namespace shmap {
namespace {

using extend::parse_jaxpr;
using test::expect_error;
using testing::HasSubstr;

std::string as_text(const std::vector<Array>& values) {
  std::string text;
  for (const Array& x : values) text += to_string(x.type()) + " " + to_string(x) + "\n";
  return text;
}

// Reads a program back, and compares its text and, if there are arguments, its values.
void expect_read_back(const ClosedJaxpr& jaxpr, std::vector<Array> args = {},
                      const extend::ParseOptions& options = {}) {
  const std::string text = to_string(jaxpr);
  SCOPED_TRACE(text);
  const ClosedJaxpr read = parse_jaxpr(text, options);
  EXPECT_EQ(to_string(read), text);
  EXPECT_EQ(to_string(read, {.dtype_names = DTypeNames::numpy}),
            to_string(jaxpr, {.dtype_names = DTypeNames::numpy}));
  if (args.empty()) return;
  std::vector<Array> all = jaxpr.consts();  // which are arguments now
  all.insert(all.end(), args.begin(), args.end());
  EXPECT_EQ(as_text(eval_jaxpr(read, all)), as_text(eval_jaxpr(jaxpr, args)));
}

Array matrix() { return reshape(arange(12.f), {3, 4}) * 0.25f - 1.f; }

TEST(ParseJaxprTest, OperationsComeBackWithTheirParameters) {
  const Array x = matrix(), n = astype(reshape(arange(12), {3, 4}), i32);
  const std::vector<std::function<Array(Array)>> programs = {
      [](Array v) { return sin(v) * 2.f + 0.1f; },
      [](Array v) { return sum(v, 1); },
      [](Array v) {
        return max(v, {0, 1});
      },
      [](Array v) { return argmax(v, 1); },
      [](Array v) { return matmul(v, transpose(v)); },
      [](Array v) { return einsum("ij,kj->ik", v, v); },
      [](Array v) {
        return reshape(v, {2, 6});
      },
      [](Array v) {
        return broadcast_to(sum(v, 0), {2, 4});
      },
      [](Array v) {
        return concatenate({v, v}, 1);
      },
      [](Array v) { return v[1]; },
      [](Array v) { return sort(v, 1); },
      [](Array v) { return cumsum(v, 1); },
      [](Array v) { return softmax(v, 1); },
      [](Array v) { return astype(v, i32); },
      [](Array v) { return where(v > 0.f, v, -v); },
      [](Array v) { return clip(v, -0.5f, 0.5f); },
      [](Array v) { return v + arange(4.f); },
      [](Array v) {
        return take(v, array<int>({1, 0}, {2}), 0);
      },
      [](Array v) {
        return dynamic_slice(v, {1, 2}, {2, 2});
      },
      [](Array v) {
        return dynamic_update_slice(v, zeros({1, 1}), {1, 2});
      },
      [](Array v) { return maximum(v, -std::numeric_limits<float>::infinity()); },
      [](Array v) { return astype(v, bf16) * bfloat16(0.1f); },
      [](Array v) { return astype(v, f16) + float16(0.1f); },
      [](Array v) { return astype(v, f64) * 0.1; },
      [](Array v) {
        return grad([](Array u) { return sum(take(u, array<int>({1, 1}, {2}), 0)); })(v);
      },
      [](Array v) { return jit([](Array u) { return cos(u); })(v) + 1.f; },
      [](Array v) { return checkpoint([](Array u) { return cos(u); })(v); },
      [](Array v) {
        return fori_loop(
            0, 3, [](Array, Array c) { return cos(c); }, v);
      },
      [](Array v) {
        return while_loop([](Array c) { return sum(c) < 100.f; }, [](Array c) { return c + 1.f; },
                          v);
      },
      [](Array v) {
        return cond(
            sum(v) > 0.f, [](Array u) { return u; }, [](Array u) { return -u; }, v);
      },
      [](Array v) {
        return switch_(argmax(sum(v, 1), 0),
                       {[](Array u) { return u; }, [](Array u) { return u * 2.f; },
                        [](Array u) { return u * 3.f; }},
                       v);
      },
  };
  for (const auto& f : programs) expect_read_back(make_jaxpr(f)(x), {x});
  for (const auto& f : std::vector<std::function<Array(Array)>>{
           [](Array v) { return v + 3; }, [](Array v) { return v & 1; },
           [](Array v) { return v << 2; }, [](Array v) { return sum(v, 0); },
           [](Array v) { return astype(v, u8); }})
    expect_read_back(make_jaxpr(f)(n), {n});
}

TEST(ParseJaxprTest, LiteralsComeBackWithTheirDtype) {
  const auto none = [](auto f) { return make_jaxpr(f)(ShapedArray({}, f32)); };
  expect_read_back(none([](Array) { return Array(3); }), {Array(0.f)});
  expect_read_back(none([](Array) { return Array(3.5); }), {Array(0.f)});
  expect_read_back(none([](Array) { return Array(true); }), {Array(0.f)});
  expect_read_back(none([](Array) { return Array(std::uint8_t{200}); }), {Array(0.f)});
  expect_read_back(none([](Array) { return Array(bfloat16(2.f)); }), {Array(0.f)});
  EXPECT_THAT(to_string(none([](Array) { return Array(3.5); })), HasSubstr("( 3.5:f64[] )"));
  EXPECT_THAT(to_string(none([](Array) { return Array(3.5f); })), HasSubstr("( 3.5 )"));
  // A variable may be called `inf`, and `in`.
  std::string text = "{ lambda a:f32[] .\n  let ";
  for (const char* v : {"inf", "in", "let", "e", "b"})
    text += std::string(v) + ":f32[] = sin a\n      ";
  const ClosedJaxpr read =
      parse_jaxpr(text + "c:f32[] = add inf in\n  in ( c, inf:f32[], -inf, nan, True, e ) }");
  const std::vector<Array> out = eval_jaxpr(read, {Array(1.f)});
  EXPECT_FLOAT_EQ(out[0].item<float>(), 2 * std::sin(1.f));  // of another libm on a GPU
  EXPECT_TRUE(std::isinf(out[1].item<float>()));
  EXPECT_TRUE(std::isnan(out[3].item<float>()));
  const ClosedJaxpr many = make_jaxpr([](Array x) {
    for (int k = 0; k < 6000; ++k) x = sin(x);
    return maximum(x, std::numeric_limits<float>::infinity());
  })(ShapedArray({}, f32));
  EXPECT_EQ(to_string(parse_jaxpr(to_string(many))), to_string(many));
}

TEST(ParseJaxprTest, BodiesComeBackOnTheDevicesThatThereAre) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = reshape(arange(64.f), {8, 8});
  const std::vector<std::function<Array(Array)>> bodies = {
      [](Array v) { return psum(v, "i"); },
      [](Array v) { return psum(v, axes("i", "j")); },
      [](Array v) { return pmax(v, "j"); },
      [](Array v) { return all_gather(v, "i"); },
      [](Array v) { return all_gather(v, "i", {.axis = 1, .tiled = true}); },
      [](Array v) {
        return psum_scatter(all_gather(v, "i", {.tiled = true}), "i", {.tiled = true});
      },
      [](Array v) {
        return ppermute(v, "i", {{0, 1}, {1, 0}});
      },
      [](Array v) { return all_to_all(v, "j", 0, 1, {.tiled = true}); },
      [](Array v) { return v + astype(axis_index("i"), f32); },
      [](Array v) {
        return psum(v, "i", {.axis_index_groups = {{0, 1}, {2, 3}}});
      },
      [](Array v) {
        return fori_loop(
            0, 2,
            [](Array, Array c) {
              return ppermute(c, "i", {{0, 1}});
            },
            v);
      },
  };
  for (const auto& body : bodies) {
    for (const bool check_vma : {true, false}) {
      const auto f =
          shard_map(body, mesh, P("i", "j"), P(axes("i", "j")), {.check_vma = check_vma});
      try {
        make_jaxpr(f)(x);
      } catch (const Error&) {
        continue;  // of a lower rank, or of a mesh too small for the blocks
      }
      expect_read_back(make_jaxpr(f)(x), {x});
      expect_read_back(make_jaxpr(f)(x), {x}, {.mesh = mesh});
    }
  }
  // A lowered program that marks blocks as equal because the user says so.
  const auto trusted =
      shard_map([](Array v) { return bind(assume_equal_p, v * 2.f, AxesParams(Axes("i")), {}); },
                make_mesh({8}, "i"), P("i"), P());
  expect_read_back(make_jaxpr(trusted)(ShapedArray({8}, f32)), {ones({8})});
  expect_error<Error>(
      [] {
        parse_jaxpr(
            "{ lambda a:f32[3]{i} .\n  let b:f32[3] = assume_equal[axes=('k',)] a\n  in ( b ) }");
      },
      {"line 2, column 7", "unbound axis name 'k'"});
  // A program for a larger mesh than there are devices is read, and cannot run.
  const AbstractMesh large({16384}, "i");
  const auto f = shard_map([](Array v) { return psum(v, "i"); }, large, P("i"), P());
  const ClosedJaxpr jaxpr = make_jaxpr(f)(ShapedArray({32768}, f32));
  expect_read_back(jaxpr);
  EXPECT_EQ(cost_analysis(parse_jaxpr(to_string(jaxpr))).collectives.at(0).bytes,
            cost_analysis(jaxpr).collectives.at(0).bytes);
}

TEST(ParseJaxprTest, ConstraintsHaveTheMeshThatIsGiven) {
  const Mesh mesh = make_mesh({8}, {"i"});
  const ClosedJaxpr jaxpr = make_jaxpr([&](Array v) {
    return with_sharding_constraint(v * 2.f, NamedSharding(mesh, P("i")));
  })(ShapedArray({16}, f32));
  expect_read_back(jaxpr, {}, {.mesh = mesh});
  expect_error<ValueError>([&] { parse_jaxpr(to_string(jaxpr)); },
                           {"is of a mesh that the program does not name", "ParseOptions::mesh"});
}

TEST(ParseJaxprTest, RulesOfOnesOwnAreNotInTheText) {
  const auto f = custom_jvp([](Array v) { return sin(v); },
                            [](std::tuple<Array> x, std::tuple<Array> t) {
                              return std::pair{sin(std::get<0>(x)), std::get<0>(t)};
                            });
  const Array x = arange(3.f);
  const ClosedJaxpr jaxpr = make_jaxpr(f)(x);
  expect_read_back(jaxpr, {x});
  const ClosedJaxpr read = parse_jaxpr(to_string(jaxpr));
  expect_error<TypeError>([&] { grad([&](Array v) { return sum(eval_jaxpr(read, {v})[0]); })(x); },
                          {"custom_jvp_call", "has no rules for its derivatives"});
}

TEST(ParseJaxprTest, EffectsKeepTheirOrder) {
  const ClosedJaxpr jaxpr = make_jaxpr([](Array x) {
    debug::print("a \"quoted\" {}\n", x);
    const Array y = sin(x);
    debug::print("no arguments");
    return y;
  })(ShapedArray({}, f32));
  expect_read_back(jaxpr);
  testing::internal::CaptureStdout();
  eval_jaxpr(parse_jaxpr(to_string(jaxpr)), {full({}, 0.f)})[0].block_until_ready();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a \"quoted\" 0.0\n\nno arguments\n");
}

// The texts that a test file expects: string literals, adjoining ones put together.
std::vector<std::string> programs_in(const std::string& source) {
  std::vector<std::string> found;
  std::string text;
  std::size_t i = 0;
  const auto flush = [&] {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.starts_with("{ lambda") && text.ends_with(" ) }")) found.push_back(text);
    text.clear();
  };
  while (i < source.size()) {
    if (source.compare(i, 2, "//") == 0) {
      while (i < source.size() && source[i] != '\n') ++i;
    } else if (source.compare(i, 3, "R\"(") == 0) {
      const std::size_t end = source.find(")\"", i);
      if (end == std::string::npos) break;
      text += source.substr(i + 3, end - i - 3);
      i = end + 2;
    } else if (source[i] == '"') {
      for (++i; i < source.size() && source[i] != '"'; ++i) {
        if (source[i] != '\\') {
          text += source[i];
        } else if (++i < source.size()) {
          text += source[i] == 'n' ? '\n' : source[i];
        }
      }
      ++i;
    } else {
      if (source[i] != ' ' && source[i] != '\n') flush();
      ++i;
    }
  }
  flush();
  return found;
}

TEST(ParseJaxprTest, EveryProgramThatATestExpectsIsReadBack) {
  int programs = 0, refused = 0;
  const std::filesystem::path tests = std::filesystem::path(SHMAP_GOLDEN_DIR).parent_path();
  const extend::ParseOptions options{.mesh = make_mesh({8}, {"i"})};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(tests)) {
    if (entry.path().extension() != ".cpp") continue;
    if (entry.path().filename() == "parse_jaxpr_test.cpp") continue;  // has texts that are none
    std::ifstream in(entry.path());
    const std::string source((std::istreambuf_iterator<char>(in)), {});
    for (const std::string& text : programs_in(source)) {
      SCOPED_TRACE(entry.path().string() + "\n" + text);
      const bool numpy = text.find(":float") != text.npos || text.find(":int") != text.npos;
      if (text.find(" fused[") != text.npos) {  // of a plan; what it holds has a form of its own
        EXPECT_THROW(parse_jaxpr(text, options), ValueError);
        ++refused;
        continue;
      }
      try {
        const ClosedJaxpr read = parse_jaxpr(text, options);
        EXPECT_EQ(to_string(read, {.dtype_names = numpy ? DTypeNames::numpy : DTypeNames::jax}),
                  text);
        ++programs;
      } catch (const Error& e) {
        // Users' primitives of other tests, primitives of plans, and lowered programs, whose text
        // does not say that their variance is unchecked.
        EXPECT_THAT(e.what(), testing::AnyOf(HasSubstr("there is no primitive"),
                                             HasSubstr("an equation of it cannot be made"),
                                             HasSubstr("vary over unlike mesh axes")));
        ++refused;
      }
    }
  }
  std::printf("%d programs read back, %d refused by name\n", programs, refused);
  EXPECT_GE(programs, 20);
  EXPECT_LE(refused, programs / 4);
}

void read_back_random_program(unsigned seed) {
  test::RandomSmoothBody g(seed * 7919u + 43u, {test::Extents{}});
  const bool reverse = g.pick(3) != 0;
  g.where = {.transforms = 3, .derivatives = 2, .reverse = reverse, .forward = !reverse};
  test::Values arguments;
  for (std::size_t k = 0; k < 2; ++k) {
    arguments.push_back(g.random_array({4, 2}));
    g.known.push_back({{4, 2}, 0});
  }
  for (std::size_t n = 2 + g.pick(5); n > 0; --n) g.step();
  if (g.program.empty()) return;
  const test::SmoothProgram program{g.program, g.known.back()};
  expect_read_back(make_jaxpr([&](Array a, Array b) {
                     return program.mapped({a, b});
                   })(arguments[0], arguments[1]),
                   arguments);
}
TEST(ParseJaxprTest, RandomProgramsAreReadBack) { test::run_cases(40, read_back_random_program); }

TEST(ParseJaxprTest, ErrorsSayWhere) {
  const auto refused = [](const char* text, std::initializer_list<const char*> fragments) {
    expect_error<Error>([&] { parse_jaxpr(text); }, fragments);
  };
  const auto ill_typed = [](const char* text, std::initializer_list<const char*> fragments) {
    expect_error<TypeError>([&] { parse_jaxpr(text); }, fragments);
  };
  refused("", {"line 1, column 1: wanted a program", "the end of the text"});
  refused(
      "{ lambda a:f32[3] .\n  let b:f32[3] = sine a\n  in ( b ) }",
      {"line 2, column 7", "no primitive 'sine' (did you mean 'sin'?)", "parse_jaxpr_test.cpp:"});
  ill_typed("{ lambda a:f32[3] .\n  let b:f32[3] = sin c\n  in ( b ) }",
            {"line 2, column 22: unbound variable 'c'"});
  refused("{ lambda a:f32[3] .\n  let b:f32[4] = sin a\n  in ( b ) }",
          {"line 2, column 7", "gives a value of type f32[3] to a variable of type f32[4]"});
  ill_typed("{ lambda a:f32[3], b:f32[2] .\n  let c:f32[3] = mul a b\n  in ( c ) }",
            {"line 2, column 7: mul: operands of shapes (3,) and (2,)"});
  ill_typed("{ lambda a:f32[3], a:f32[3] .\n  let\n  in ( a ) }",
            {"line 1, column 20: the variable 'a' is bound twice"});
  ill_typed("{ lambda a:f32[3] .\n  let a:f32[3] = sin a\n  in ( a ) }",
            {"line 2, column 7: the variable 'a' is bound twice"});
  refused("{ lambda a:g32[3] .\n  let\n  in ( a ) }", {"line 1, column 12: 'g32' is not a dtype"});
  refused("{ lambda a:f32[9223372036854775807,3] .\n  let\n  in ( a ) }", {"line 1, column 10"});
  refused("{ lambda a:f32[3] .\n  let b:f32[] = reduce_sum[axes=(1,)] a\n  in ( b ) }",
          {"line 2, column 7", "1"});
  refused("{ lambda a:f32[3] .\n  let b:f32[] = reduce_sum[axes=(0] a\n  in ( b ) }",
          {"line 2, column 35", "bracket"});
  refused("{ lambda a:f32[3] .\n  let b:f32[] = reduce_sum[axes=(0,) axes=(0,)] a\n  in ( b ) }",
          {"line 2, column 38: the parameter 'axes' is given twice"});
  refused("{ lambda a:f32[3] .\n  let b:f32[3] = add a\n  in ( b ) }",
          {"add: 1 operand, and it takes 2"});
  refused("{ lambda a:u8[3] .\n  let b:u8[3] = add a 300\n  in ( b ) }",
          {"line 2, column 23: '300' is not a literal of dtype u8"});
  refused("{ lambda a:f32[3]{i} .\n  let b:f32[3] = psum[axes=('k',)] a\n  in ( b ) }",
          {"line 2, column 7", "unbound axis name 'k'"});
  refused("{ lambda a:f32[3] .\n  let b:f32[3] = sin a\n  in ( b ) } x", {"line 3, column 14"});
  refused("{ lambda a:f32[3] .\n  let b:f32[3] = fused a\n  in ( b ) }",
          {"fused: an equation of it cannot be made"});
  // A few bytes of text must not take a gigabyte to be checked.
  refused("{ lambda a:f32[] .\n  let debug_print[fmt=\"{:>700000000}\"] a\n  in ( a ) }",
          {"{:>700000000}", "at most 4096"});
  refused(
      "{ lambda a:f32[] .\n  let debug_print[fmt=\"{:.99999999999999999999f}\"] a\n  in ( a ) }",
      {"at most 4096"});
  std::string deep;
  for (int k = 0; k < 300; ++k) deep += "{ lambda . let jit[jaxpr=";
  refused(deep.c_str(), {"nested no more than 100 deep"});
}

TEST(ParseJaxprTest, UsersPrimitivesAreFoundByName) {
  extend::Primitive scale("test_scale");
  scale
      .def_params({{"by", 2.0},
                   {"what", "x"},
                   {"dims", {0, 1}},
                   {"groups", extend::ParamValue::Groups{{0}}}})
      .def_abstract_eval([](ShapedArray x) { return x; })
      .def_impl([](Array x, const extend::Params& p) {
        return x * static_cast<float>(extend::get_param<double>(p, "by"));
      });
  const auto f = [&](Array x) {
    return scale.bind(extend::Params{{"by", 3}, {"what", "it's [a] \"b\" \\"}}, x);
  };
  const Array x = arange(3.f);
  const ClosedJaxpr jaxpr = make_jaxpr(f)(x);
  EXPECT_EQ(to_string(jaxpr),
            "{ lambda a:f32[3] .\n  let b:f32[3] = test_scale[by=3.0 dims=(0, 1) groups=((0,),) "
            "what='it\\'s [a] \"b\" \\\\'] a\n  in ( b ) }");
  expect_read_back(jaxpr, {x});
}

}  // namespace
}  // namespace shmap
