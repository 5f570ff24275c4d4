#include "cuda/driver/kept.h"

#include "core/device/backend.h"

namespace shmap::cuda {

bool keep_with_graph(Ref<Kept> object) {
  void* const capture = detail::thread_state.capture;
  if (capture == nullptr) return false;
  static_cast<KeptByCapture*>(capture)->keep(std::move(object));
  return true;
}

}  // namespace shmap::cuda
