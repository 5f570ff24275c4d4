#include "cuda/driver/graph_resource.h"

#include "core/device/backend.h"

namespace shmap::cuda {

bool keep_with_graph(Ref<GraphResource> object) {
  void* const capture = detail::thread_state.capture;
  if (capture == nullptr) return false;
  static_cast<CapturedResources*>(capture)->keep(std::move(object));
  return true;
}

}  // namespace shmap::cuda
