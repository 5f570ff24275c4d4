// Functions of the CUDA driver, found through the CUDA runtime: the library does not link the
// driver, so that it starts on machines without one.
#pragma once

namespace shmap::cuda {

// The function of that name, or null where the driver lacks it. Any thread; creates no context.
void* driver_function(const char* name) noexcept;

template <class Fn>
Fn* driver_function(const char* name) noexcept {
  return reinterpret_cast<Fn*>(driver_function(name));
}

}  // namespace shmap::cuda
