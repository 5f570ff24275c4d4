#include "cuda/driver/graph_resource.h"

#include "core/device/backend.h"

namespace shmap::cuda {

CapturedResources* CapturedResources::of_thread() noexcept {
  return static_cast<CapturedResources*>(detail::thread_state.capture);
}

bool launches_dependently() noexcept {
  const CapturedResources* const capture = CapturedResources::of_thread();
  return capture != nullptr && capture->allows_dependent_launches();
}

bool keep_with_graph(Ref<GraphResource> object) {
  CapturedResources* const capture = CapturedResources::of_thread();
  if (capture == nullptr) return false;
  capture->keep(std::move(object));
  return true;
}

}  // namespace shmap::cuda
