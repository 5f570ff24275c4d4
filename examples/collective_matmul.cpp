// The main job: C = A @ B with A split by rows over a ring of devices, by the all-gather collective
// matmul (Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large
// Deep Learning Models", ASPLOS 2023; the second example of JEP 14273). Each device multiplies the
// rows that it holds while it passes them on to its neighbour, instead of waiting until all rows
// have been gathered.
//
//   collective_matmul [--lhs A.npy --rhs B.npy] [--out C.npy] [--devices cpu:8/8] [--shard-rhs]
//                     [--reps N] [--trace overlap.json]
//
// Under mpirun the ring leads through all processes, and each writes a timeline of its own,
// overlap.json.0 and so on, which scripts/timeline draws together.
#include <shmap/shmap.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/processes.h"
#include "support/terminal.h"

namespace {

using namespace shmap;

// On each device: lhs is its rows of A, f32[M/n,K]{i}; rhs is B or its columns of B; the result is
// all rows of C.
Array matmul_allgather(Array lhs, Array rhs) {
  const int n = psum(1, "i");
  const Array index = axis_index("i");
  const auto rows = lhs.shape()[0];

  Array accum = zeros({rows * n, rhs.shape()[1]}, lhs.dtype());
  for (int i = 0; i < n; ++i) {  // each device hands its rows to its left neighbour
    const Array update = matmul(lhs, rhs);
    if (i + 1 < n) lhs = ppermute(lhs, "i", ring_permutation("i", -1));  // while the product runs
    // Device d holds the rows of device d + i by now.
    accum = dynamic_update_slice(std::move(accum), update, {(index + i) % n * rows, 0});
  }
  return accum;
}

struct Arguments {
  std::string lhs, rhs, out, devices, trace;
  bool shard_rhs = false;
  int reps = 5;
};

Array random_matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (float& v : values) v = uniform(engine);
  return array<float>(values, {rows, columns});
}

template <class F>
double median_seconds(int reps, F&& run) {
  std::vector<double> times;
  run();  // the first run brings memory in
  for (int r = 0; r < reps; ++r) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + reps / 2, times.end());
  return times[static_cast<std::size_t>(reps / 2)];
}

// Prints the array's type, its spec and the devices of its shards.
void show(const char* name, const Array& x) {
  std::cout << name << "  " << x.type() << "  " << x.sharding().spec();
  if (x.sharding().spec() == P()) {
    std::cout << "  on every device, all of it\n";
  } else {
    std::cout << "\n";
    debug::visualize_array_sharding(x);
  }
}

void require(bool condition, const std::string& text) {
  if (!condition) throw ValueError(text);
}

using Product = std::function<Array(Array, Array)>;

// Prints how long the product takes, and its rate beside that of plain products.
void print_rates(const Arguments& args, const Product& multiply, const Array& A, const Array& B) {
  const double seconds = median_seconds(args.reps, [&] { multiply(A, B).block_until_ready(); });
  const int n = static_cast<int>(devices().size()), products = args.shard_rhs ? 1 : n;
  const auto M = A.shape()[0], K = A.shape()[1], N = B.shape()[1];
  const double gflop =
      2e-9 * static_cast<double>(M) * static_cast<double>(K) * static_cast<double>(N) * products;
  using examples::time_text;
  std::printf("time            %10s   (median of %d)\n", time_text(seconds).c_str(), args.reps);
  std::printf("rate            %10.1f   GFLOP/s (%.1f GFLOP in all, done by %d device(s))\n",
              gflop / seconds, gflop, n);
  // The same FLOPs as plain products on one device: a product of all of A and all of B for each
  // device that does all the work. Several processes would measure them at once, on the same cores.
  if (process_count() == 1) {
    const Array a = examples::whole(A), b = examples::whole(B);
    const double raw_seconds = median_seconds(args.reps, [&] {
      for (int p = 0; p < products; ++p) matmul(a, b).block_until_ready();
    });
    std::printf("of raw products %10.1f %% (%d plain product(s) of the same FLOPs: %s)\n",
                100 * raw_seconds / seconds, products, time_text(raw_seconds).c_str());
  }
}

// Prints the largest error against a plain product in f64.
void print_error(const Array& A, const Array& B, const Array& C) {
  const Array a = examples::whole(A), b = examples::whole(B);
  const Array want = matmul(astype(a, f64), astype(b, f64));
  const Array error = max(abs(astype(examples::whole(C), f64) - want));
  std::printf(
      "largest error   %10.3g   against a plain product in f64, whose largest entry is %.3g\n",
      error.item<double>(), max(abs(want)).item<double>());
}

// Traces a run, and prints how much of its communication ran beside arithmetic. moves: whether
// anything is copied between memory spaces.
void print_overlap(const Arguments& args, const Product& multiply, const Array& A, const Array& B,
                   bool moves) {
  const std::string path = args.trace.empty() ? "/dev/null" : examples::own_file(args.trace);
  profiler::Trace trace(path);
  {
    named_scope scope("collective matmul");
    multiply(A, B).block_until_ready();
  }
  trace.close();
  const profiler::Overlap overlap = trace.overlap();
  if (!moves) {
    std::cout
        << "overlap                  -   the devices share one memory space: nothing has to move\n";
  } else {
    std::printf(
        "overlap         %10.1f %% of %s of communication (of all devices together) ran while a "
        "device computed\n",
        100 * overlap.overlapped_us / std::max(overlap.communication_us, 1e-9),
        examples::time_text(overlap.communication_us * 1e-6).c_str());
  }
  std::cout << trace.timeline();
  if (!args.trace.empty())
    std::cout << "the timeline is in " << path << ": open it in ui.perfetto.dev\n";
}

int run(int argc, char** argv) {
  Arguments args;
  CLI::App app("C = A @ B over a ring of devices, by the all-gather collective matmul");
  app.add_option("--lhs", args.lhs, "A, a .npy file; its rows are split over the devices");
  app.add_option("--rhs", args.rhs, "B, a .npy file");
  app.add_option("--out", args.out, "where to write C as .npy");
  app.add_option("--devices", args.devices,
                 "the devices: cpu:8 (one memory space), cpu:8/8 (one each) …");
  app.add_flag("--shard-rhs", args.shard_rhs,
               "split B and C by columns, so that no device repeats another's work");
  app.add_option("--reps", args.reps, "timed runs, of which the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_option("--trace", args.trace, "where to write a timeline for Perfetto");
  CLI11_PARSE(app, argc, argv);
  require(args.lhs.empty() == args.rhs.empty(),
          "--lhs and --rhs go together: give both, or neither for random ones");

  init(argc, argv, {.devices = args.devices});
  examples::print_in_process_0();
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  const P rows("i", none), columns = args.shard_rhs ? P(none, "i") : P();

  const bool random = args.lhs.empty();
  const Array A = random ? device_put(random_matrix(4096, 2048, 1), NamedSharding(mesh, rows))
                         : load_npy(args.lhs, NamedSharding(mesh, rows));
  const Array B = random ? device_put(random_matrix(2048, 1024, 2), NamedSharding(mesh, columns))
                         : load_npy(args.rhs, NamedSharding(mesh, columns));
  require(A.ndim() == 2 && B.ndim() == 2 && A.shape()[1] == B.shape()[0] && A.dtype() == B.dtype(),
          "A of type " + to_string(A.type()) + " and B of type " + to_string(B.type()) +
              " cannot be multiplied: both must be matrices of one dtype, and A have as many "
              "columns as B has rows");

  // With B and C replicated the check has to be off: the result of a ppermute may differ
  // from device to device, and types cannot show that all devices end up with the same rows
  // of C.
  const Product multiply =
      shard_map(matmul_allgather, mesh, {rows, columns}, columns, {.check_vma = args.shard_rhs});

  std::cout << mesh << " on " << devices().front() << " … " << devices().back() << "\n";
  show("A", A);
  show("B", B);
  const Array C = multiply(A, B);
  C.block_until_ready();
  show("C", C);
  std::cout << examples::virtual_devices_note();

  reset_counters();
  multiply(A, B).block_until_ready();
  const Counters moved = counters();

  print_rates(args, multiply, A, B);
  std::printf(
      "bytes moved     %10s   between memory spaces, by %lld collectives; %s in other copies\n",
      examples::bytes_text(static_cast<double>(moved.collective_bytes)).c_str(),
      static_cast<long long>(moved.collectives),
      examples::bytes_text(static_cast<double>(moved.copied_bytes)).c_str());
  print_error(A, B, C);
  print_overlap(args, multiply, A, B, moved.collective_bytes > 0);
  if (!args.out.empty()) {
    save_npy(args.out, C);
    std::cout << "C is in " << args.out << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    std::cerr << "collective_matmul: " << e.what() << "\n";
    return 1;
  }
}
