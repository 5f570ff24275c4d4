// main() of the programs with rows on one GPU.
#pragma once
#include <shmap/shmap.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "bench/support/rows.h"

namespace shmap::bench {

// bench_main on `cuda:0x8` or, if set, on SHMAP_DEVICES; calls rows() once the devices
// exist.
inline int gpu_main(int argc, char** argv, const std::string& program, std::vector<Row> (*rows)()) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  if (devices == nullptr) devices = "cuda:0x8";
  try {
    init(argc, argv, {.devices = devices});
    return bench_main(argc, argv, program, rows(), {{"devices", devices}});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s_bench: %s\n", program.c_str(), e.what());
    return 1;
  }
}

}  // namespace shmap::bench
