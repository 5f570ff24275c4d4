// Arrays over a user's memory.
#include <memory>

#include "core/array/sharding.h"
#include "core/ir/trace.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/launch.h"
#include "shmap/io.h"

namespace shmap::detail {

Array from_memory(DType dtype, const void* data, std::int64_t count, const Shape& shape,
                  std::function<void()> release, SourceLine source) {
  ensure_started();
  refuse_in_task("from_memory");
  if (!release) {
    throw ValueError(
        "from_memory: `release` is an empty function: give the function to call once the memory is "
        "no longer needed, or [] {} for memory that lives as long as the process" +
        at_line(source));
  }
  const int item = itemsize(dtype);
  const std::int64_t bytes = checked_bytes(shape, item);
  if (shape.num_elements() != count) {
    throw ValueError("from_memory: " + std::to_string(count) + " elements for shape " +
                     to_string(shape) + ", which has " + std::to_string(shape.num_elements()) +
                     at_line(source));
  }
  const MeshImpl* mesh = MeshImpl::default_device();
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(item) == 0;
  if (bytes == 0 || !aligned || !mesh->backend().host_addressable()) {
    const Array copy = array_from_host(data, dtype, shape);
    copy.block_until_ready(source);
    release();
    return copy;
  }
  StoredNode* node =
      StoredNode::make(ShapedArray(shape, dtype, false, AxisSet()), mesh, mesh->local_count());
  Array out = Array::of(node);
  node->sharding = mesh->replicated();
  auto owner = std::make_unique<std::function<void()>>(std::move(release));
  node->blocks()[0].buffer = mesh->local(0).space->wrap(
      const_cast<void*>(data), bytes,
      [](void* context) noexcept {
        const std::unique_ptr<std::function<void()>> last(
            static_cast<std::function<void()>*>(context));
        (*last)();
      },
      owner.get());
  owner.release();
  return out;
}

}  // namespace shmap::detail
