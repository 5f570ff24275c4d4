// shmap-test: devices
// The mistakes that newcomers make most, with the whole text of each message, compared with
// tests/golden/common_mistakes.txt: whoever changes a message reads it there as its reader will.
// With SHMAP_TEST_WRITE_GOLDEN set the file is written instead. Lines of this file are "LINE".
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

struct Mistake {
  std::string title;
  std::function<void()> make;
};

const char* kind_of(const Error& e) {
  if (dynamic_cast<const ValueError*>(&e)) return "ValueError";
  if (dynamic_cast<const TypeError*>(&e)) return "TypeError";
  if (dynamic_cast<const CollectiveError*>(&e)) return "CollectiveError";
  if (dynamic_cast<const DeviceError*>(&e)) return "DeviceError";
  return "Error";
}

std::string message_of(const Mistake& mistake) {
  try {
    mistake.make();
  } catch (const Error& e) {
    static const std::regex here("[^ \n]*common_mistakes_test\\.cpp:[0-9]+");
    return kind_of(e) + (": " + std::regex_replace(e.what(), here, "my_program.cpp:LINE"));
  }
  return "nothing was thrown";
}

Mesh rows() { return make_mesh({8}, "rows"); }
Array numbers(Shape shape) { return reshape(arange(shape.num_elements()), shape); }
Array identity(Array x) { return x; }

// ---- jit and the host
std::vector<Mistake> under_transforms() {
  return {
      {"if on a traced value, under jit",
       [] {
         const auto relu_or_neg = jit([](Array x) {
           if (sum(x) > 0) return x;
           return -x;
         });
         relu_or_neg(arange(4));
       }},
      {"item of an argument, under jit",
       [] { jit([](Array x, Array n) { return x * n.item<float>(); })(arange(4), 2.f); }},
      {"to_vector in a loop that jit traces",
       [] {
         jit([](Array x) {
           return fori_loop(
               0, 3, [](Array, Array c) { return c + c.to_vector<float>()[0]; }, x);
         })(arange(4));
       }},
      {"if on a value that differs between devices, in a shard_map body",
       [] {
         shard_map([](Array block) { return sum(block) > 3 ? block : -block; }, rows(), P("rows"),
                   P("rows"))(arange(8));
       }},
      {"item in a body that jit traces",
       [] {
         const auto f = shard_map([](Array block) { return block * sum(block).item<float>(); },
                                  rows(), P("rows"), P("rows"));
         jit(f)(arange(8));
       }},
      {"if on an example, under vmap",
       [] { vmap([](Array x) { return x > 0 ? x : -x; })(arange(4)); }},
      {"sharding inside a body",
       [] {
         shard_map(
             [](Array block) {
               block.sharding();
               return block;
             },
             rows(), P("rows"), P("rows"))(arange(8));
       }},
      {"item of several elements", [] { arange(4).item<float>(); }},
      {"to_vector of another element type", [] { arange(4).to_vector<int>(); }},
      {"a traced value kept after its function",
       [] {
         Array kept;
         jit([&](Array x) {
           kept = x * 2.f;
           return x;
         })(arange(4));
         kept + 1.f;
       }},
      {"an array used after std::move",
       [] {
         Array x = arange(4);
         const Array y = std::move(x);
         x + 1.f;
       }},
      {"shape of an array that was never assigned", [] { Array().shape(); }},
  };
}

// ---- specs and meshes
std::vector<Mistake> of_specs() {
  return {
      {"a mesh axis that is not there",
       [] { shard_map(identity, rows(), P("row"), P("rows"))(arange(8)); }},
      {"a mesh axis twice", [] { NamedSharding(rows(), P("rows", "rows")); }},
      {"a spec longer than the array has dims",
       [] { shard_map(identity, rows(), P("rows", none), P("rows"))(arange(8)); }},
      {"a dim that the axis does not divide",
       [] { shard_map(identity, rows(), P("rows"), P("rows"))(arange(12)); }},
      {"too few in_specs",
       [] {
         shard_map([](Array a, Array b) { return a + b; }, rows(), {P("rows")}, P("rows"))(
             arange(8), arange(8));
       }},
      {"a psum forgotten, with out_specs P()",
       [] { shard_map([](Array x) { return sum(x * x); }, rows(), P("rows"), P())(arange(8)); }},
      {"arrays on two meshes of the same devices",
       [] {
         const Mesh grid = make_mesh({4, 2}, {"i", "j"});
         const Array a = device_put(numbers({8, 8}), NamedSharding(grid, P("i", "j")));
         const Array b = device_put(numbers({8, 8}), NamedSharding(rows(), P("rows")));
         a + b;
       }},
      {"a mesh larger than there are devices", [] { make_mesh({16}, "i"); }},
      {"axis_size of a misspelt axis", [] { rows().axis_size("Rows"); }},
      {"a logical axis without a rule",
       [] {
         const AxisRules rules{{"batch", "rows"}, {"heads", none}};
         rules("bacth", "heads");
       }},
  };
}

// ---- collectives
std::vector<Mistake> of_collectives() {
  const auto in_body = [](std::function<Array(Array)> body) {
    return [body] { shard_map(body, rows(), P("rows"), P("rows"))(arange(128)); };
  };
  return {
      {"a collective over a misspelt axis", in_body([](Array x) { return psum(x, "rwos"); })},
      {"a collective outside of every body", [] { psum(arange(8), "rows"); }},
      {"a ppermute with a receiver twice", in_body([](Array x) {
         return ppermute(x, "rows", {{0, 1}, {2, 1}});
       })},
      {"a psum_scatter that was meant tiled",
       in_body([](Array x) { return psum_scatter(x, "rows"); })},
      {"an all_to_all that was meant tiled",
       in_body([](Array x) { return all_to_all(x, "rows", 0, 0); })},
      {"a dim lost by an untiled psum_scatter",
       [] {
         shard_map([](Array x) { return psum_scatter(x, "rows"); }, rows(), P("rows"),
                   P("rows"))(arange(64));
       }},
      {"a collective in a branch that not every device takes", in_body([](Array x) {
         return cond(
             x[0] > 3, [](Array y) { return y + psum(y, "rows"); }, identity, x);
       })},
      {"a whole array used where its block was meant",
       [] {
         const Array weights = arange(8);
         shard_map([&](Array x) { return x * weights; }, rows(), P("rows"), P("rows"))(arange(16));
       }},
  };
}

// ---- shapes, derivatives, loops
std::vector<Mistake> of_functions() {
  return {
      {"shapes that do not broadcast",
       [] {
         numbers({4, 3}) + arange(4);
       }},
      {"matrices that do not fit",
       [] {
         matmul(numbers({2, 3}), numbers({4, 5}));
       }},
      {"a reshape to another size",
       [] {
         reshape(arange(6), {4, 2});
       }},
      {"an index out of range", [] { arange(4)[7]; }},
      {"a gradient of what is no scalar", [] { grad([](Array x) { return x * x; })(arange(3)); }},
      {"a gradient with respect to integers",
       [] { grad([](Array x) { return sum(x * 2.f); })(arange(3, i32)); }},
      {"a custom_vjp that closes over a differentiated value",
       [] {
         const auto loss = [](Array w) {
           const auto scaled =
               custom_vjp([&](Array x) { return x * w; },
                          [&](Array x) {
                            return std::pair{x * w, none};
                          },
                          [&](none_t, Array y_bar) { return std::tuple{y_bar * w}; });
           return scaled(w * w);
         };
         grad(loss)(2.f);
       }},
      {"a custom_jvp that closes over a differentiated value, under jit",
       [] {
         const auto f = [](Array w) {
           const auto scaled =
               custom_jvp([&](Array x) { return x * w; },
                          [&](std::tuple<Array> x, std::tuple<Array> x_dot) {
                            return std::pair{std::get<0>(x) * w, std::get<0>(x_dot) * w};
                          });
           return scaled(w * w);
         };
         jit(grad(f))(2.f);
       }},
      {"a loop whose carry changes its dtype",
       [] {
         fori_loop(
             0, 3, [](Array, Array c) { return c * 1.5f; }, arange(3, i32));
       }},
      {"a loop whose carry changes its shape",
       [] {
         fori_loop(
             0, 3,
             [](Array, Array c) {
               return concatenate({c, c});
             },
             arange(3));
       }},
      {"vmap over axes of unlike sizes",
       [] { vmap([](Array x, Array y) { return x + y; })(arange(4), arange(5)); }},
  };
}

std::string all_messages() {
  std::string text;
  for (const auto& group : {under_transforms(), of_specs(), of_collectives(), of_functions()})
    for (const Mistake& m : group) text += "---- " + m.title + "\n" + message_of(m) + "\n\n";
  return text;
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(CommonMistakes, HaveTheMessagesThatAreWrittenDown) {
  const std::string path = SHMAP_GOLDEN_DIR "/common_mistakes.txt";
  const std::string text = all_messages();
  if (std::getenv("SHMAP_TEST_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::istringstream is(text), wanted(file_text(path));
  std::string title, line, wanted_line;
  while (std::getline(is, line)) {
    if (line.starts_with("---- ")) title = line;
    std::getline(wanted, wanted_line);
    ASSERT_EQ(line, wanted_line) << "in the message of " << title << " (" << path << ")";
  }
  EXPECT_FALSE(std::getline(wanted, wanted_line)) << path << " has more: " << wanted_line;
}

}  // namespace
}  // namespace shmap
