// Helpers for programs that may run as several processes (mpirun).
#pragma once
#include <shmap/shmap.h>

#include <cstdio>
#include <string>

namespace examples {

// Returns all of x, on a device of this process.
inline shmap::Array whole(const shmap::Array& x) {
  return device_put(x.is_fully_addressable() ? x : process_allgather(x), shmap::local_devices()[0]);
}

// Shows only the standard output of process 0.
inline void print_in_process_0() {
  if (shmap::process_index() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr)
    throw shmap::Error("standard output cannot be turned off");
}

// The name of a file of this process: "trace.json.2" if there are several processes.
inline std::string own_file(const std::string& path) {
  return shmap::process_count() > 1 ? path + "." + std::to_string(shmap::process_index()) : path;
}

}  // namespace examples
