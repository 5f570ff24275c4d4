// A custom interpreter: counts the communication of a program, by collective and mesh axis, from
// the program alone. It goes into bodies and branches, counts loops as often as they run, and works
// for meshes of any size, with devices or without. The sum is compared with cost_analysis; the exit
// code is 1 if they differ.
#include <shmap/shmap.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/processes.h"

using namespace shmap;

struct Traffic {
  std::int64_t calls = 0, bytes = 0;  // bytes: what each device puts in
};
using Report = std::map<std::string, Traffic>;  // "psum over i"

std::int64_t bytes_of(const ShapedArray& t) { return t.size() * itemsize(t.dtype()); }

void count(const ClosedJaxpr& jaxpr, std::int64_t times, Report& report) {
  static const std::set<std::string> moving = {
      "psum",         "pmax",       "pmin",     "all_gather",    "all_gather_invariant",
      "psum_scatter", "all_to_all", "ppermute", "broadcast_from"};
  for (const extend::Eqn& e : extend::eqns(jaxpr)) {
    if (moving.contains(e.primitive().name())) {
      const bool has_axes = e.params().contains("axes");
      std::string key = e.primitive().name() + " over";
      for (const auto& axis : e.param<std::vector<std::string>>(has_axes ? "axes" : "axis_name"))
        key += " " + axis;
      Traffic& traffic = report[key];
      traffic.calls += times;
      for (const extend::Atom& a : e.inputs()) traffic.bytes += times * bytes_of(a.type());
    }
    const bool loops = e.primitive() == "scan";
    const std::int64_t trips = loops ? e.param<std::int64_t>("length") : 1;
    for (const ClosedJaxpr& inside : e.sub_jaxprs()) count(inside, times * trips, report);
  }
}

int main() {
  examples::print_in_process_0();
  // A layer of each of 4 stages, split over "model", on 512 devices that need not exist.
  const AbstractMesh mesh({64, 8}, {"data", "model"});
  auto layers = shard_map(
      [](Array x, Array w_in, Array w_out) {
        Array y = fori_loop(
            0, 4,
            [&](Array, Array h) { return h + psum(matmul(relu(matmul(h, w_in)), w_out), "model"); },
            pbroadcast(x, "model"));
        return pmean(sum(y * y), axes("data", "model"));
      },
      mesh, {P("data"), P(none, "model"), P("model")}, P(), {.check_vma = false});
  const ClosedJaxpr jaxpr = make_jaxpr(layers)(
      ShapedArray({1024, 256}, f32), ShapedArray({256, 1024}, f32), ShapedArray({1024, 256}, f32));

  Report report;
  count(jaxpr, 1, report);
  std::int64_t total = 0, wanted = 0;
  for (const auto& [name, traffic] : report) {
    std::cout << name << ": " << traffic.calls << " calls, " << traffic.bytes << " bytes\n";
    total += traffic.bytes;
  }
  for (const CollectiveCost& c : cost_analysis(jaxpr).collectives) wanted += c.bytes;
  std::cout << total << " bytes a device; cost_analysis has " << wanted << "\n";
  return total == wanted && total > 0 ? 0 : 1;
}
