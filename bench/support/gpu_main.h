// What the programs of rows on one GPU have for a main().
#pragma once
#include <shmap/shmap.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "bench/support/rows.h"

namespace shmap::bench {

// bench_main on `cuda:0x8`, or what SHMAP_DEVICES says; rows() is called once the devices are
// there.
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
