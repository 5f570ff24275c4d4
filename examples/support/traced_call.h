// Traces of a call, and the comparison of two results, for the programs that write a trace of a
// blocking and of an overlapped form (scripts/overlap_pictures draws them).
#pragma once
#include <shmap/shmap.h>

#include <cstdio>
#include <string>

// Makes the call three times, which captures what is under jit and touches its memory, and then
// once with a trace in FOLDER/NAME.json (of process 1 under mpirun: NAME.1.json). Prints how much
// of its communication was beside products.
template <class Call>
shmap::Array traced_call(const std::string& folder, const std::string& name, const Call& call) {
  shmap::Array result;
  for (int k = 0; k < 3; ++k) result = call().block_until_ready();
  const std::string process =
      shmap::process_count() > 1 ? "." + std::to_string(shmap::process_index()) : "";
  shmap::profiler::Trace trace(folder + "/" + name + process + ".json");
  result = call().block_until_ready();
  trace.close();
  const shmap::profiler::Overlap overlap = trace.overlap();
  std::printf(
      "%-10s  computes %.1f ms, communicates %.1f ms, %.0f %% of it beside products\n",
      name.c_str(), overlap.compute_us / 1000, overlap.communication_us / 1000,
      overlap.communication_us > 0 ? 100 * overlap.overlapped_us / overlap.communication_us : 0);
  return result;
}

// Prints the largest difference of the two results. The program's exit code: 0 where it is at most
// 1e-4 of the largest entry.
inline int compare_results(const shmap::Array& one, const shmap::Array& other) {
  const float difference = max(abs(one - other)).item<float>();
  const float largest = max(abs(one)).item<float>();
  if (shmap::process_index() == 0)
    std::printf("the largest difference of the two results: %.3g, of entries up to %.3g\n",
                static_cast<double>(difference), static_cast<double>(largest));
  return difference <= 1e-4f * largest ? 0 : 1;
}
