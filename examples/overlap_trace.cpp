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
#include <iostream>
#include <string>

#include "support/traced_call.h"

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

template <class F>
Array traced(const char* name, const F& body, const Mesh& mesh, const Array& A, const Array& B,
             const std::string& folder) {
  const auto f = jit(shard_map(body, mesh, {P("i", none), P(none, "i")}, P(none, "i")));
  return traced_call(folder, name, [&] { return f(A, B); });
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
  return compare_results(one, other);
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
