// The reader of programs' texts: any bytes give an error with line and column, or a program that
// checks, whose text is read back the same. Small ones are run, one in 16.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/shmap.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

namespace {

struct Tally {
  long long accepted = 0, refused = 0, runs = 0;
  ~Tally() {
    std::printf("%lld inputs accepted, %lld refused; %lld run\n", accepted, refused, runs);
  }
};
Tally tally;

constexpr std::int64_t kMostElements = 4096;
constexpr int kMostTrips = 64;

// True if a run ends soon: no long or endless loops, no large arrays.
bool is_small(const ClosedJaxpr& jaxpr, int depth = 0) {
  if (depth > 4) return false;
  const auto small = [](const ShapedArray& t) {
    return t.size() <= kMostElements && t.dtype() != prng_key && t.vma().empty();
  };
  for (const ShapedArray& t : jaxpr.in_types())
    if (!small(t)) return false;
  const std::vector<extend::Eqn> eqns = extend::eqns(jaxpr);
  if (eqns.size() > 50) return false;
  for (const extend::Eqn& e : eqns) {
    if (e.primitive() == "while" || e.primitive() == "shard_map" || e.has_effect()) return false;
    if (e.primitive() == "scan" && e.param<std::int64_t>("length") > kMostTrips) return false;
    for (const extend::Var& v : e.outputs())
      if (!small(v.type())) return false;
    for (const ClosedJaxpr& inner : e.sub_jaxprs())
      if (!is_small(inner, depth + 1)) return false;
  }
  return true;
}

void run(const ClosedJaxpr& jaxpr) {
  std::vector<Array> args;
  for (const ShapedArray& t : jaxpr.in_types()) args.push_back(zeros(t.shape(), t.dtype()));
  try {
    for (const Array& x : eval_jaxpr(jaxpr, args)) x.block_until_ready();
  } catch (const Error&) {  // what has a type may yet have no kernel
  }
  ++tally.runs;
}

}  // namespace

std::vector<std::string> seeds() {
  const ShapedArray m({2, 3}, f32);
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto text = [](auto f, auto... types) { return to_string(make_jaxpr(f)(types...)); };
  return {
      text([](Array x) { return sum(sin(x) * 2.f, 1); }, m),
      text([](Array x) { return matmul(x, transpose(x)) + 1.f; }, m),
      text(
          [](Array x) {
            return concatenate({x, x[0] * x}, 1);
          },
          m),
      text(
          [](Array x) {
            return take(x, array<int>({1, 0}, {2}), 0);
          },
          m),
      text(
          [](Array x) {
            return dynamic_update_slice(x, zeros({1, 1}), {1, 2});
          },
          m),
      text([](Array x) { return astype(sort(cumsum(x, 0), 1), bf16); }, m),
      text(
          [](Array x) {
            return where(x > 0.f, pad(x, {{1, 0}, {0, 2}})[1], 0.f);
          },
          ShapedArray({2, 1}, f32)),
      text(
          [](Array x) {
            return fori_loop(
                0, 3, [](Array k, Array c) { return c * astype(k, f32); }, x);
          },
          m),
      text(
          [](Array x) {
            return cond(
                sum(x) > 0.f, [](Array u) { return u; }, [](Array u) { return -u; }, x);
          },
          m),
      text(
          [](Array x) {
            return while_loop([](Array c) { return sum(c) < 9.f; }, [](Array c) { return c + 1.f; },
                              x);
          },
          m),
      text([](Array x) { return jit([](Array u) { return cos(u); })(x); }, m),
      text(shard_map(
               [](Array x) { return psum(all_gather(x, "i", {.tiled = true}), axes("i", "j")); },
               mesh, P("i", "j"), P()),
           ShapedArray({8, 2}, f32)),
      text(shard_map(
               [](Array x) {
                 return ppermute(x, "j", {{0, 1}, {1, 0}});
               },
               mesh, P("j"), P("j")),
           ShapedArray({4}, f32)),
      text(
          [](Array x) {
            debug::print("x = {}", x);
            return x;
          },
          ShapedArray({}, i32)),
      "{ lambda a:f32[3]{i} .\n  let b:f32[3] = assume_equal[axes=('i',)] a\n  in ( b ) }",
      "{ lambda a:f32[3]{i} .\n  let b:f32[3] = psum[axes=('i',)] a\n  in ( b, 2.5:f64[] ) }",
  };
}

std::vector<std::string> dictionary() {
  return {"{ lambda ",
          " .\n  let ",
          "\n  in ( ",
          " ) }",
          "a:f32[]",
          "a",
          "b",
          "f32[2,3]",
          "[2]",
          "[]",
          "{i}",
          "=",
          " = ",
          "\n",
          "[",
          "]",
          "(",
          ")",
          ",",
          "'i'",
          "axes=(0,)",
          "axes=(0, 1)",
          "axes=('i',)",
          "jaxpr={ lambda ",
          "length=3",
          "num_carry=1",
          "num_consts=0",
          "sin a",
          "add a b",
          "mul 2.0 a",
          "-1",
          "9223372036854775807",
          "18446744073709551616",
          "4294967296",
          "nan",
          "inf",
          "-inf",
          "True",
          "False",
          "1e-05",
          "bf16",
          "i64",
          "u8",
          "bool",
          "key<fry>",
          "reduce_sum",
          "reshape[new_sizes=(6,)]",
          "transpose[permutation=(1, 0)]",
          "cond",
          "while",
          "iota[dimension=0 dtype=int32 shape=(3,)]",
          "sort[dimension=0 is_stable=True num_keys=1]",
          "gather",
          "scatter_add",
          "Mesh('i': 2)",
          "P('i', none)",
          "float32",
          "'",
          "\"",
          "\\",
          "mode=clip",
          "(0, 1)",
          "((0, 1),)",
          "branches[0]="};
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<ClosedJaxpr> read;
  try {
    read = extend::parse_jaxpr(text);
  } catch (const Error& e) {
    const std::string_view what = e.what();
    fuzz::require(what.starts_with("parse_jaxpr: line "), "an error says where");
    fuzz::require(what.find(", column ") != what.npos, "and in what column");
    fuzz::require(what.size() < 8 * size + 4000, "a message is not endless");
    ++fuzz::tally.refused;
    return 0;
  }
  const std::string printed = to_string(*read);
  fuzz::require(to_string(extend::parse_jaxpr(printed)) == printed,
                "what is printed is read back the same");
  typecheck(*read);
  if (fuzz::tally.accepted++ % 16 == 0 && fuzz::is_small(*read)) fuzz::run(*read);
  return 0;
}
