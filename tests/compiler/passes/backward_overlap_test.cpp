// shmap-test: devices
// The plan of a data-parallel gradient: a layer's gradient is summed over devices on the
// communication streams while the products of the layers before it go on. None of them waits for a
// sum, neither for its value nor for its memory.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

struct Step {
  bool comm = false;
  std::string text;
  std::vector<int> after;
};

std::vector<Step> steps_of(const std::string& plan) {
  std::vector<Step> steps;
  std::istringstream lines(plan);
  const std::regex head(R"(\s*step (\d+): (\w+)\s+(.*))"), span(R"((\d+)(?:-(\d+))?)");
  std::smatch m;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, m, head)) {
      EXPECT_EQ(static_cast<std::size_t>(std::stoi(m[1])), steps.size());
      steps.push_back({m[2] == "comm", m[3], {}});
    } else if (const auto at = line.find("after the events of step"); at != std::string::npos) {
      const std::string list = line.substr(at);
      for (std::sregex_iterator it(list.begin(), list.end(), span), end; it != end; ++it) {
        const int first = std::stoi((*it)[1]);
        const int last = (*it)[2].matched ? std::stoi((*it)[2]) : first;
        for (int k = first; k <= last; ++k) steps.back().after.push_back(k);
      }
    }
  }
  return steps;
}

TEST(BackwardOverlap, SumsOfGradientsRunBesideEarlierLayers) {
  const Mesh mesh = make_mesh({8}, {"data"});
  const auto loss = shard_map(
      [](std::vector<Array> w, Array x) {
        for (const Array& layer : w) x = tanh(matmul(x, layer));
        return pmean(mean(square(x)), "data");
      },
      mesh, {P(), P("data")}, P());
  const std::vector<Array> w = {ones({32, 48}), ones({48, 48}), ones({48, 48}), ones({48, 16})};
  const Array x = device_put(ones({64, 32}), NamedSharding(mesh, P("data")));
  const auto g = jit(grad(loss));
  for (int k = 0; k < 2; ++k) g(w, x)[0].block_until_ready();
  const std::vector<Step> steps = steps_of(g.plan_text());

  int sums = 0, products_beside = 0;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (!steps[s].comm || steps[s].text.find("= psum[") == std::string::npos) continue;
    ++sums;
    for (std::size_t later = s + 1; later < steps.size(); ++later) {
      if (steps[later].comm || steps[later].text.find("dot_general") == std::string::npos) continue;
      // Beyond the next two sums its memory may serve others.
      int between = 0;
      for (std::size_t k = s + 1; k < later; ++k)
        between += steps[k].text.find("= psum[") != std::string::npos;
      if (between >= 2) break;
      ++products_beside;
      for (const int a : steps[later].after)
        EXPECT_NE(a, static_cast<int>(s)) << steps[later].text << "\nwaits for\n" << steps[s].text;
    }
  }
  EXPECT_EQ(sums, 4) << g.plan_text();
  EXPECT_GE(products_beside, 6) << g.plan_text();
}

}  // namespace
}  // namespace shmap
