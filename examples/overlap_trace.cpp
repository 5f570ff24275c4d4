// Two traces of C = A @ B with A split by rows over the devices: blocking, which gathers all rows
// and then multiplies, and overlapped, which multiplies the rows that a device has while they
// travel to its neighbour (the second example of JEP 14273). scripts/overlap_pictures draws them.
//
//   overlap_trace FOLDER [--devices cpu:2/2] [--rows 2048] [--inner 1024] [--columns 1024]
//
// Under mpirun the devices are those of all processes, and each process writes files of its own.
#include <shmap/shmap.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>

namespace {

using namespace shmap;

// On each device: a is its rows of A, b its columns of B; the result is its columns of C.
Array blocking(Array a, Array b) {
  const named_scope scope("blocking");
  return matmul(all_gather(a, "i", {.axis = 0, .tiled = true}), b);
}

Array overlapped(Array a, Array b) {
  const named_scope scope("overlapped");
  const int n = axis_size("i");
  const Array index = axis_index("i");
  const auto rows = a.shape()[0];
  Array c = zeros({rows * n, b.shape()[1]}, a.dtype());
  for (int step = 0; step < n; ++step) {
    const Array product = matmul(a, b);
    if (step + 1 < n) a = ppermute(a, "i", ring_permutation("i", -1));
    // Device d holds the rows of device d + step by now.
    c = dynamic_update_slice(std::move(c), product, {(index + step) % n * rows, 0});
  }
  return c;
}

// Returns "overlapped.json", and for process 1 "overlapped.1.json".
std::string trace_path(const std::string& folder, const std::string& name) {
  const std::string process = process_count() > 1 ? "." + std::to_string(process_index()) : "";
  return folder + "/" + name + process + ".json";
}

template <class F>
Array traced(const char* name, const F& body, const Mesh& mesh, const Array& A, const Array& B,
             const std::string& folder) {
  const auto f = jit(shard_map(body, mesh, {P("i", none), P(none, "i")}, P(none, "i")));
  Array C;
  for (int k = 0; k < 3; ++k) C = f(A, B).block_until_ready();  // captured, its memory touched
  profiler::Trace trace(trace_path(folder, name));
  C = f(A, B).block_until_ready();
  trace.close();
  const profiler::Overlap overlap = trace.overlap();
  std::printf(
      "%-10s  computes %.1f ms, communicates %.1f ms, %.0f %% of it beside products\n", name,
      overlap.compute_us / 1000, overlap.communication_us / 1000,
      overlap.communication_us > 0 ? 100 * overlap.overlapped_us / overlap.communication_us : 0);
  return C;
}

int run(int argc, char** argv) {
  std::string folder, devices_text;
  std::int64_t rows = 2048, inner = 1024, columns = 1024;
  CLI::App app("Traces of a product whose left side is gathered: blocking and overlapped");
  app.add_option("folder", folder, "where to write blocking.json and overlapped.json")->required();
  app.add_option("--devices", devices_text,
                 "the devices, of each process: cpu:2/2 (one space each)");
  app.add_option("--rows", rows, "of A, split over the devices");
  app.add_option("--inner", inner, "the columns of A, which are the rows of B");
  app.add_option("--columns", columns, "of B, split over the devices");
  CLI11_PARSE(app, argc, argv);
  init(argc, argv, {.devices = devices_text});

  const Mesh mesh = make_mesh({static_cast<int>(devices().size())}, "i");
  const Array A = device_put(random::uniform(random::key(1), {rows, inner}, f32, -1, 1),
                             NamedSharding(mesh, P("i", none)));
  const Array B = device_put(random::uniform(random::key(2), {inner, columns}, f32, -1, 1),
                             NamedSharding(mesh, P(none, "i")));
  const Array one = traced("blocking", blocking, mesh, A, B, folder);
  const Array other = traced("overlapped", overlapped, mesh, A, B, folder);
  const float difference = max(abs(one - other)).item<float>();
  const float largest = max(abs(one)).item<float>();
  if (process_index() == 0)
    std::printf("the largest difference of the two results: %.3g, of entries up to %.3g\n",
                static_cast<double>(difference), static_cast<double>(largest));
  return difference <= 1e-4f * largest ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    std::cerr << "overlap_trace: " << e.what() << "\n";
    return 1;
  }
}
