// Snippets of the published interface in its spelling, compiled against the installed package, run
// and checked. GNU's dialects, CMake's default, define the macro I in <complex.h>.
#include <complex.h>
#include <shmap/shmap.h>

#include <cstdio>
#include <fstream>
#include <iostream>
using namespace shmap;

int failures = 0;
#define CHECK(...)                                                        \
  do {                                                                    \
    if (!(__VA_ARGS__)) {                                                 \
      std::cout << __FILE__ << ":" << __LINE__ << ": " #__VA_ARGS__ "\n"; \
      ++failures;                                                         \
    }                                                                     \
  } while (false)

void files(const Mesh& mesh, const Array& x) {
  save_npy("a.npy", x);
  CHECK(load_npy("a.npy").to_vector<float>() == x.to_vector<float>());
  Array y = load_npy("a.npy", NamedSharding(mesh, P("i")));
  CHECK(y.sharding() == NamedSharding(mesh, P("i")));
  CHECK(bool(all(y == x)));
  try {
    load_npy("no/such/file.npy");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("no/such/file.npy") != std::string::npos);
  }
}

void counting(const Mesh& mesh, const Array& x) {
  reset_counters();
  CHECK(counters().kernel_launches == 0);
  shard_map([](Array block) { return psum(block, "i"); }, mesh, P("i"), P())(x).block_until_ready();
  Counters c = counters();
  CHECK(c.collectives == 1);
  std::cout << c.kernel_launches << " " << c.copies << " " << c.copied_bytes << " " << c.collectives
            << " " << c.collective_bytes << " " << c.allocations << " " << c.syncs << "\n";
}

void looking(const Mesh& mesh, const Array& x) {
  debug::print("x = {}", x);
  debug::print("{} {}", x, 3);
  debug::print("here");
  debug::visualize_array_sharding(device_put(x, NamedSharding(mesh, P("i"))));
  {
    profiler::Trace t("trace.json");
    named_scope s("q_wi");
    (x + 1).block_until_ready();
  }
  std::ifstream file("trace.json");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  CHECK(text.find("q_wi") != std::string::npos);
}

void rules() {
  AxisRules rules{{"heads", axes("y", "z")}, {"batch", "x"}, {"time", none}};
  P logical = rules("batch", "time", none, "heads");
  CHECK(logical == P("x", none, none, axes("y", "z")));
}

void indexing() {
  Array x = reshape(arange(24, i32), {2, 3, 4});
  Array i = arange(2, i32)[1];
  CHECK(x[{range(), 0, range(1, 3), none}].shape() == Shape{2, 2, 1});
  CHECK(x[{range(), 0, range(1, 3), none}].to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{1, 2, 13, 14});
  CHECK(einsum("ijk,ljk->il", x, x).shape() == Shape{2, 2});
  CHECK(dynamic_slice(x[0], {i, 0}, {2, 4}).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 10, 11});
}

void donation(const Mesh& mesh) {
  auto f = shard_map([](Array block) { return block * 2.f; }, mesh, P("i"), P("i"));
  Array x = device_put(arange(8), NamedSharding(mesh, P("i")));
  Array y = f(std::move(x));
  CHECK(y.to_vector<float>()[7] == 14.f);
  try {
    x + 1;  // x was moved from: the point of it
    CHECK(false);
  } catch (const Error&) {
  }
}

// Trees: structs of arrays and trees, also with defaults. Structs with members of other types are
// no trees, whether or not they have defaults.
struct Inner {
  Array w;
  std::array<Array, 3> heads{};
};
struct Outer {
  float scale = 2.f;
  Inner inner{};
  std::string name = "outer";
  std::vector<Inner> layers{};
  std::optional<Inner> last{};
  std::tuple<Array, std::pair<Array, Inner>> rest{};
  bool flag = true;
};
struct WithMesh {
  Array w;
  Mesh mesh;
};
struct WithPointer {
  Array w;
  float* data;
};
struct WithReference {
  Array w;
  float& data;
};
static_assert(Tree<Inner> && Tree<Outer>);
static_assert(!Tree<WithMesh> && !Tree<WithPointer> && !Tree<WithReference> && !Tree<Mesh>);

// Structs as arguments and results: members that are no arrays pass through.
struct Layer {
  Array w;
  float scale;
  std::string name;
  std::vector<Array> extra;
};

void structs(const Mesh& mesh) {
  auto f = shard_map(
      [](Layer layer) {
        layer.w = psum(layer.w, "i");
        return layer;
      },
      mesh, P("i"), {P(), P("i")});
  Layer out = f(Layer{arange(8), 2.5f, "first", {arange(8, i32)}});
  CHECK(out.w.item<float>() == 28.f);
  CHECK(out.scale == 2.5f && out.name == "first");
  CHECK(out.extra.size() == 1 && out.extra[0].to_vector<std::int32_t>()[7] == 7);
}

// Types and values of loops and branches, in the published spelling.
void loops() {
  using AA = std::tuple<Array, Array>;
  using Vec = std::vector<Array>;
  Array init = arange(3), x = init, w = init + 1;
  int lo = 0, hi = 8;
  Array traced = astype(sum(x), i32), index = traced, pred = sum(x) > 0;
  CHECK(fori_loop(
            lo, hi, [](Array, auto carry) { return carry; }, init)
            .shape() == Shape{3});
  CHECK(fori_loop(
            0, traced, [](Array i, Array c) { return c + i; }, 0.f)
            .item<float>() == 3.f);
  auto [acc, last] = fori_loop(
      0, 8, [](Array, auto c) { return c; }, std::pair{x, w});
  CHECK(bool(all(acc == x)) && bool(all(last == w)));
  AA pair = while_loop([](AA c) { return std::get<0>(c) < 3; },
                       [](AA c) {
                         return AA{std::get<0>(c) + 1, std::get<1>(c)};
                       },
                       AA{0, w});
  CHECK(std::get<0>(pair).item<int>() == 3);
  auto [carry, ys] = scan([](Array c, Array e) { return std::pair{c + e, c}; }, x, w);
  CHECK(ys.shape() == Shape{3, 3} && carry.shape() == Shape{3});
  {
    auto [c, y] = scan(
        [](AA s, Vec e) {
          return std::tuple{s, std::tuple{e[0], e[1]}};
        },
        AA{x, w}, Vec{x, w});
    static_assert(std::is_same_v<decltype(c), AA> && std::is_same_v<decltype(y), AA>);
  }
  {
    auto [c, y] = scan([](Array s, auto) { return std::pair{s, s}; }, x, none, {.length = 10});
    CHECK(y.shape() == Shape{10, 3});
  }
  auto f0 = [](Array a) { return a; }, f2 = f0;
  auto t = [](Array a) { return a * 2; };
  auto g = [](Array a, Array b) { return std::tuple{a, b}; };
  CHECK(bool(all(cond(pred, t, f0, x) == x * 2)));
  CHECK(bool(all(cond(
                     true, [&] { return x; }, [&] { return w; }) == x)));
  static_assert(std::is_same_v<AA, decltype(cond(pred, g, g, x, w))>);
  CHECK(bool(all(switch_(index, {f0, t}, x) == x * 2)));
  CHECK(bool(all(switch_(0, {f0, f2, t}, x) == x)));
  CHECK(bool(all(switch_(1, {[](Array a) { return a; }, [](Array a) { return -a; }}, x) == -x)));
  CHECK(bool(all(switch_(index, std::tuple{f0, t}, x) == x * 2)));
  static_assert(std::is_same_v<AA, decltype(switch_(index, std::tuple{g, g}, x, w))>);
  static_assert(std::is_same_v<AA, decltype(switch_<AA>(index, {g, g}, x, w))>);
}

// Programs: traced, printed, checked, run, jitted.
template <class Want, class Got>
void expect_type(Got&&) {
  static_assert(std::is_same_v<std::decay_t<Got>, Want>);
}
#define TYPE(Want, ...) expect_type<Want>(__VA_ARGS__)

void programs(const Mesh& mesh, Array x) {
  using AA = std::tuple<Array, Array>;
  using Vec = std::vector<Array>;
  Array w = x;
  Vec p{x, w};
  Layer layer{x, 1.f, "layer", {}};
  auto f = [](Array a, Array b) { return sum(a * b); };
  auto f1 = [](Array a) { return sum(a); };
  auto g = [](auto a, auto b) { return std::tuple{a * b, a}; };
  auto loss = [](Vec q, Array b) { return sum(q[0] * b); };

  TYPE(Array, jit(f)(x, w));
  TYPE(AA, jit(g)(x, w));
  TYPE(Array, jit([] { return zeros({2}); })());
  TYPE(Layer, jit([](Layer n) { return n; })(layer));
  TYPE(Array, jit(f)(x, 2.f));
  auto jf = jit(f);
  CHECK(jf(x, w).item<float>() == 140.f);
  TYPE(Array, jit(jit(f))(x, w));

  ClosedJaxpr j = make_jaxpr(f)(x, w);
  make_jaxpr(f)(ShapedArray({2, 3}, f32), ShapedArray({2, 3}, f32));
  make_jaxpr([] { return sin(full({}, 3.0, f64)); })();
  make_jaxpr(loss)(std::vector<ShapedArray>{{{8}, f32}}, x);
  make_jaxpr(f1)(ShapedArray({}, f64));
  make_jaxpr([](auto a) { return sum(a); })(ShapedArray({2560, 640}, bf16, "i"));
  make_jaxpr(f1, {.omnistaging = false})(3.);
  make_jaxpr([](Array a) { return 2. * a; })(3.);
  std::string text = to_string(j), numpy = to_string(j, {.dtype_names = DTypeNames::numpy});
  CHECK(text.find("f32[8]") != std::string::npos && numpy.find("float32[8]") != std::string::npos);
  typecheck(j);
  std::cout << typecheck(j) << j << "\n";
  std::vector<Array> outs = eval_jaxpr(j, {x, w});
  CHECK(outs.at(0).item<float>() == 140.f);
  eval_jaxpr(make_jaxpr(f)(2.f, 3.f), {2.f, 3.f});

  TYPE(Array, with_sharding_constraint(x, NamedSharding(mesh, P("i"))));
  TYPE(Vec, with_sharding_constraint(p, NamedSharding(mesh, P("i"))));
  TYPE(Layer, with_sharding_constraint(layer, NamedSharding(mesh, P())));
  Array split = device_put(reshape(arange(64), {8, 8}), NamedSharding(mesh, P("i")));
  CHECK(jit([](Array a, Array b) { return matmul(a, b); })(split, w).shape() == Shape{8});

  AbstractMesh abstract({256, 64}, {"p", "q"});
  std::cout << abstract.size() << "\n";
  make_jaxpr(shard_map(
      [](Array b) {
        return psum(sum(b), {"p", "q"});
      },
      abstract, P("p", "q"), P()))(ShapedArray({512, 128}, f32));
}

// Derivatives, in the published spelling.
struct NetLayer {
  Array w;
  std::vector<Array> extra;
};
struct Net {
  NetLayer first;
  std::map<std::string, Array> heads;
  std::optional<Array> bias;
};

void derivatives() {
  using AA = std::tuple<Array, Array>;
  using A1 = std::tuple<Array>;
  using Vec = std::vector<Array>;
  Array x = arange(8), w = x, x_dot = x, w_dot = x, y_bar = sum(x);
  Vec p{x, w};
  Net net{{x, {}}, {{"q", w}}, {}};
  auto f = [](Array a, Array b) { return sum(a * b); };
  auto f1 = [](Array a) { return sum(a); };
  auto g = [](auto a, auto b) { return std::tuple{a * b, a}; };
  auto loss = [](Vec q, Array b) { return sum(q[0] * b); };
  auto net_loss = [](Net n) { return sum(n.first.w); };
  make_jaxpr(value_and_grad(loss))(p, x);

  auto [y, y_dot] = jvp(f, std::tuple{x, w}, std::tuple{x_dot, w_dot});
  CHECK(y_dot.item<float>() == 2 * y.item<float>());
  auto [yl, f_lin] = linearize(f, x, w);
  TYPE(Array, f_lin(x_dot, w_dot));
  {
    auto [y, pullback] = vjp(f, x, w);
    auto [x_bar, w_bar] = pullback(y_bar);
    CHECK(bool(all(w_bar == x * y_bar)) && x_bar.shape() == Shape{8});
    pullback(1.f);
  }
  {
    auto [y, pullback] = vjp(g, x, w);
    auto [x_bar, w_bar] = pullback({x, w});
    TYPE(AA, y);
    pullback(std::tuple{x, w});
    CHECK(bool(all(x_bar == x * w + w)) && w_bar.shape() == Shape{8});
  }
  {
    auto [y, pullback] = vjp(loss, p, x);
    auto [p_bar, x_bar] = pullback(1.f);
    TYPE(Vec, p_bar);
    TYPE(Array, x_bar);
  }
  {
    auto [y, pullback] = vjp(f1, x);
    TYPE(A1, pullback(y));
  }
  auto [x_bar] = linear_transpose(f1, x)(y_bar);
  CHECK(x_bar.to_vector<float>()[0] == 28.f);

  using Arr2 = std::array<Array, 2>;
  using Arr1 = std::array<Array, 1>;
  using VA = std::tuple<Vec, Array>;
  TYPE(Array, grad(f)(x, w));
  TYPE(Vec, grad(loss)(p, x));
  TYPE(Net, grad(net_loss)(net));
  TYPE(Array, grad(f1)(2.f));
  TYPE(Arr2, grad(f, {0, 1})(x, w));
  TYPE(Arr1, grad(f, {0})(x, w));
  TYPE(Array, grad(f, 1)(x, w));
  TYPE(Array, grad<1>(f)(x, w));
  TYPE(AA, grad<0, 1>(f)(x, w));
  TYPE(VA, grad<0, 1>(loss)(p, x));
  TYPE(Array, grad<1>(loss)(p, x));
  auto [value, gradient] = value_and_grad(loss)(p, x);
  TYPE(Vec, gradient);
  CHECK(value.item<float>() == 140.f);
  auto [v2, g2] = value_and_grad(f, {0, 1})(x, w);
  auto [ga, gb] = g2;
  CHECK(bool(all(ga == w)) && bool(all(gb == x)) && v2.item<float>() == 140.f);
  auto aux = [](Array a) { return std::pair{sum(a), std::tuple{a, a}}; };
  auto [ag, extra] = grad(aux, has_aux)(x);
  TYPE(Array, ag);
  TYPE(AA, extra);
  auto [both, ag2] = value_and_grad(aux, has_aux)(x);
  TYPE(AA, both.second);
  TYPE(Array, ag2);
  TYPE(Array, jacfwd(f1)(x));
  TYPE(Array, jacrev(f1)(x));
  TYPE(Array, hessian(f1)(x));
  TYPE(Vec, jacrev(loss)(p, x));
  TYPE(std::vector<Vec>, hessian(loss)(p, x));
  TYPE(Net, jacfwd(net_loss)(net));
  TYPE(Array, grad([&](Array b) { return checkpoint([&](Array c) { return f(x, c); })(b); })(w));
  TYPE(Array, grad(grad([](Array a) { return a * a; }))(2.f));
  TYPE(Array, jit(grad(f))(x, w));
  TYPE(Array, vmap(grad(f1))(reshape(arange(8), {2, 4})));
  TYPE(Array, checkpoint(f)(x, w));
  auto cj = custom_jvp(f1, [](A1 primals, A1 tangents) {
    auto [a] = primals;
    auto [t] = tangents;
    return std::pair{sum(a), sum(t)};
  });
  TYPE(Array, cj(x));
  auto cv = custom_vjp(
      f1,
      [](Array a) {
        return std::pair{sum(a), a};
      },
      [](Array residual, Array ct) { return std::tuple{residual * ct}; });
  TYPE(Array, cv(x));
  CHECK(bool(all(grad(cv)(x) == x)));
}

void both_schools(const Mesh& mesh) {
  auto global = [](Array a, Array b) { return matmul(a, b); };
  Array a = reshape(arange(128), {16, 8}), b = ones({8, 4});
  Array y = jit(global, mesh, {P("i", none), P()}, P("i", none))(a, b);
  TYPE(Array, y);
  CHECK(bool(all(y == matmul(a, b))) && y.sharding() == NamedSharding(mesh, P("i")));
  CHECK(bool(all(jit(global, mesh, {P("i", none), P()})(a, b) == y)));
  CHECK(bool(all(jit(global, mesh)(a, b) == y)));
  ClosedJaxpr jaxpr = make_jaxpr(jit(global, AbstractMesh({16384}, "i"), {P("i"), P()}, P("i")))(
      ShapedArray({65536, 8}, f32), ShapedArray({8, 4}, f32));
  CHECK(explain_sharding(jaxpr).find("P('i')") != std::string::npos);
  Schedule s = simulate(jaxpr, Topology{.levels = {{8, {3, 400000}}, {2048, {10, 45000}}},
                                        .flops_per_us = 7e8,
                                        .memory_bytes_per_us = 4e6});
  // 4 rows of 8, all of b, 4 rows of 4.
  CHECK(s.us > 0 && s.exposed_communication_us == 0 && s.peak_bytes == 4 * (4 * 8 + 8 * 4 + 4 * 4));
  s.save("predicted.json");
}

int main() {
  Mesh mesh = make_mesh({8}, {"i"});
  Array x = arange(8);
  files(mesh, x);
  counting(mesh, x);
  looking(mesh, x);
  rules();
  indexing();
  loops();
  donation(mesh);
  structs(mesh);
  programs(mesh, x);
  derivatives();
  both_schools(mesh);
  if (failures == 0) std::cout << "all checks hold\n";
  return failures == 0 ? 0 : 1;
}
