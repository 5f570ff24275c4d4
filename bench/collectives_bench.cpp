// collectives_bench: the time of each collective over all devices of all processes, in the columns
// and with the options of nccl-tests. Its values are integers and checked: any wrong one makes the
// exit code 1. Under mpirun process 0 prints, and a row's time is that of the slowest process.
//
//   mpirun -n 4 collectives_bench -b 1K -e 16M -f 4 -n 20 -w 5 -g 2 -c 1 -J out.json -o all_reduce
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "shmap/shmap.h"

using namespace shmap;

namespace {

struct BenchOptions {
  std::int64_t begin = 8, end = 32 << 20, factor = 2;
  int iterations = 20, warmup = 5, devices = 0;
  bool check = true;
  std::string json, only;
};

std::int32_t value(std::int64_t device, std::int64_t i) {
  return static_cast<std::int32_t>((device * 7 + i) % 13);
}

// A number of each process, reduced over all of them: that of its first device; the others have 0.
template <class T, class F>
T over_processes(const Mesh& mesh, T mine, F reduce) {
  std::vector<T> host(static_cast<std::size_t>(mesh.size()));
  host[static_cast<std::size_t>(local_devices().front().id())] = mine;
  const Array each = device_put(array<T>(host, {mesh.size()}), NamedSharding(mesh, P("i")));
  return shard_map(reduce, mesh, {P("i")}, P())(each).template to_vector<T>()[0];
}

// As nccl-tests counts: `size` bytes are a device's share of what is sent or, of gathers, the whole
// of what it gets.
struct Case {
  const char* name;
  const char* redop;
  double bus;          // busbw = algbw * bus
  std::int64_t count;  // int32 of a device's operand, for `size` bytes
  std::function<Array(Array)> body;
  std::function<std::int32_t(std::int64_t device, std::int64_t i)> wanted;
};

std::vector<Case> cases(std::int64_t n, std::int64_t size) {
  const std::int64_t total = std::max<std::int64_t>(1, size / 4);
  const std::int64_t each = std::max<std::int64_t>(1, total / n);
  const double some = static_cast<double>(n - 1) / static_cast<double>(n);
  const auto sum = [n](std::int64_t i) {
    std::int32_t s = 0;
    for (std::int64_t d = 0; d < n; ++d) s += value(d, i);
    return s;
  };
  std::vector<std::pair<int, int>> ring;
  for (int d = 0; d < n; ++d) ring.push_back({d, static_cast<int>((d + 1) % n)});
  return {
      {"all_reduce", "sum", 2 * some, total, [](Array x) { return pbroadcast(psum(x, "i"), "i"); },
       [=](std::int64_t, std::int64_t i) { return sum(i); }},
      {"all_gather", "none", some, each,
       [](Array x) { return all_gather(x, "i", {.axis = 0, .tiled = true}); },
       [=](std::int64_t, std::int64_t i) { return value(i / each, i % each); }},
      {"reduce_scatter", "sum", some, each * n,
       [](Array x) { return psum_scatter(x, "i", {.scatter_dimension = 0, .tiled = true}); },
       [=](std::int64_t d, std::int64_t i) { return sum(d * each + i); }},
      {"alltoall", "none", some, each * n,
       [](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); },
       [=](std::int64_t d, std::int64_t i) { return value(i / each, d * each + i % each); }},
      {"sendrecv", "none", 1, total, [ring](Array x) { return ppermute(x, "i", ring); },
       [=](std::int64_t d, std::int64_t i) { return value((d + n - 1) % n, i); }},
      {"broadcast", "none", 1, total,
       [](Array x) { return pbroadcast(broadcast_from(x, "i", 0), "i"); },
       [=](std::int64_t, std::int64_t i) { return value(0, i); }},
  };
}

std::int64_t wrong_in_all = 0;

}  // namespace

int main(int argc, char** argv) {
  BenchOptions o;
  CLI::App app("The time of each collective over all devices of all processes");
  app.add_option("-b", o.begin, "bytes to begin with, as 1K")->transform(CLI::AsSizeValue(false));
  app.add_option("-e", o.end, "bytes to end with")->transform(CLI::AsSizeValue(false));
  app.add_option("-f", o.factor, "from a size to the next")->check(CLI::Range(2, 1024));
  app.add_option("-n", o.iterations, "timed calls")->check(CLI::PositiveNumber);
  app.add_option("-w", o.warmup, "calls before them")->check(CLI::NonNegativeNumber);
  app.add_option("-g", o.devices, "devices of a process; without it SHMAP_DEVICES");
  app.add_option("-c", o.check, "1: values are checked");
  app.add_option("-J", o.json, "a file for the rows");
  app.add_option("-o", o.only, "one collective alone, by its name");
  CLI11_PARSE(app, argc, argv);
  // A process that ends with 1 is a fault to those that still wait for it. So each ends with 0
  // until the library has parted from the others: it does so at exit, before what was registered
  // earlier.
  std::atexit([] {
    if (wrong_in_all == 0) return;
    std::fflush(nullptr);
    std::_Exit(1);
  });
  init(argc, argv, {.devices = o.devices > 0 ? "cpu:" + std::to_string(o.devices) : std::string()});
  const auto n = static_cast<std::int64_t>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  const bool prints = process_index() == 0;
  std::string rows;
  if (prints) {
    std::printf("# %d processes, %lld devices; int32; time: of a call of a captured program\n",
                process_count(), static_cast<long long>(n));
  }
  for (const Case& kind : cases(n, 4)) {
    if (!o.only.empty() && o.only != kind.name) continue;
    if (prints) {
      std::printf("# %s\n#%13s %12s %8s %6s %10s %8s %8s %7s\n", kind.name, "size(B)", "count",
                  "type", "redop", "time(us)", "algbw", "busbw", "#wrong");
    }
    for (std::int64_t size = o.begin; size <= o.end; size *= o.factor) {
      const std::vector<Case> all = cases(n, size);
      const Case& c = *std::find_if(
          all.begin(), all.end(), [&](const Case& x) { return std::string(x.name) == kind.name; });
      std::vector<std::int32_t> host;
      for (std::int64_t d = 0; d < n; ++d)
        for (std::int64_t i = 0; i < c.count; ++i) host.push_back(value(d, i));
      const Array x =
          device_put(array<std::int32_t>(host, {n * c.count}), NamedSharding(mesh, P("i")));
      const auto f = jit(shard_map(c.body, mesh, {P("i")}, P("i")));
      for (int i = 0; i < std::max(3, o.warmup); ++i) f(x).block_until_ready();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < o.iterations; ++i) f(x).block_until_ready();
      const std::chrono::duration<double, std::micro> taken =
          std::chrono::steady_clock::now() - begin;
      // Whoever only sends is done before the others have it.
      const double us = over_processes<double>(mesh, taken.count() / o.iterations,
                                               [](Array t) { return pmax(t, "i"); });
      std::int32_t wrong = 0;
      if (o.check) {
        for (const Shard& shard : f(x).addressable_shards()) {
          const auto got = shard.data.to_vector<std::int32_t>();
          for (std::size_t i = 0; i < got.size(); ++i)
            wrong += got[i] != c.wanted(shard.device.id(), static_cast<std::int64_t>(i));
        }
        // Of all processes, so that each of them ends with the exit code of the job.
        wrong = over_processes(mesh, wrong, [](Array w) { return psum(w, "i"); });
        wrong_in_all += wrong;
      }
      const double algbw = static_cast<double>(size) / us / 1e3;
      if (prints) {
        std::printf(" %13lld %12lld %8s %6s %10.2f %8.3f %8.3f %7d\n", static_cast<long long>(size),
                    static_cast<long long>(size / 4), "int32", c.redop, us, algbw, algbw * c.bus,
                    wrong);
        std::fflush(stdout);
        rows += std::string(rows.empty() ? "" : ",\n") + "  {\"op\": \"" + c.name +
                "\", \"size\": " + std::to_string(size) + ", \"time_us\": " + std::to_string(us) +
                ", \"algbw\": " + std::to_string(algbw) +
                ", \"busbw\": " + std::to_string(algbw * c.bus) +
                ", \"wrong\": " + std::to_string(wrong) + "}";
      }
    }
  }
  if (prints && !o.json.empty()) {
    std::ofstream(o.json) << "{\"processes\": " << process_count() << ", \"devices\": " << n
                          << ", \"rows\": [\n"
                          << rows << "\n]}\n";
  }
  if (prints) std::printf("# wrong values: %lld\n", static_cast<long long>(wrong_in_all));
  return 0;
}
