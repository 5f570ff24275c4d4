// The software runtime's description of a kernel: its parameters' sizes, and a function that calls
// it.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"

#pragma GCC visibility push(default)
namespace shmap_sim {

struct KernelType {
  int count;                                                // number of parameters
  const unsigned* sizes;                                    // size of each parameter
  const bool* pointers;                                     // true for parameters that are
                                                            // addresses
  void (*invoke)(const void* function, void* const* args);  // called once per thread
};

template <class... A>
struct KernelTypeOf {
  static_assert((std::is_trivially_copyable_v<A> && ...), "kernel parameters are copied as bytes");
  static constexpr unsigned sizes[] = {static_cast<unsigned>(sizeof(A))..., 0};
  static constexpr bool pointers[] = {
      (std::is_pointer_v<A> && !std::is_function_v<std::remove_pointer_t<A>>)..., false};

  static void invoke(const void* function, void* const* args) {
    call(reinterpret_cast<void (*)(A...)>(const_cast<void*>(function)), args,
         std::index_sequence_for<A...>{});
  }
  static constexpr KernelType type{sizeof...(A), sizes, pointers, &invoke};

 private:
  template <std::size_t... I>
  static void call(void (*kernel)(A...), [[maybe_unused]] void* const* args,
                   std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<A>*>(args[I])...);
  }
};

// A kernel in an image of the module API, which exports "shmap_sim_kernel_" + name for it.
struct KernelEntry {
  const void* function;
  const KernelType* type;
};
template <class... A>
KernelEntry kernel_entry(void (*kernel)(A...)) {
  return {reinterpret_cast<const void*>(kernel), &KernelTypeOf<A...>::type};
}

// From now on the functions of the API that are given only the kernel's address know its type.
void learn_kernel(const void* function, const KernelType* type);

cudaError_t launch(const cudaLaunchConfig_t* config, const void* function, const KernelType* type,
                   void** args);

}  // namespace shmap_sim
#pragma GCC visibility pop

// In an image: SHMAP_SIM_KERNEL(name) for each __global__ function that is to be found by name.
#define SHMAP_SIM_KERNEL(name)                                  \
  extern "C" __attribute__((visibility("default")))             \
  shmap_sim::KernelEntry shmap_sim_kernel_##name();             \
  extern "C" shmap_sim::KernelEntry shmap_sim_kernel_##name() { \
    return shmap_sim::kernel_entry(&name);                      \
  }
