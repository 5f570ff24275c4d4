#include "shmap/dlpack.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "core/array/sharding.h"
#include "core/base/counters.h"
#include "core/base/dtype_rows.h"
#include "core/device/device_kinds.h"
#include "core/device/runtime.h"
#include "core/ir/trace.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/launch.h"

namespace shmap {

namespace {

struct DlElement {
  std::uint8_t code, bits;  // bits 0: DLPack lacks the dtype
  bool operator==(const DlElement&) const = default;
};
constexpr DTypeRow<DlElement> kElements[] = {
    {bool_, {kDLBool, 8}}, {i8, {kDLInt, 8}},     {i16, {kDLInt, 16}},     {i32, {kDLInt, 32}},
    {i64, {kDLInt, 64}},   {u8, {kDLUInt, 8}},    {u16, {kDLUInt, 16}},    {u32, {kDLUInt, 32}},
    {u64, {kDLUInt, 64}},  {f16, {kDLFloat, 16}}, {bf16, {kDLBfloat, 16}}, {f32, {kDLFloat, 32}},
    {f64, {kDLFloat, 64}}, {prng_key, {0, 0}},
};
static_assert(has_each_dtype(kElements));

// A deleter for std::unique_ptr that calls the tensor's own deleter.
template <class Tensor>
struct Delete {
  void operator()(Tensor* tensor) const noexcept {
    if (tensor->deleter) tensor->deleter(tensor);
  }
};
template <class Tensor>
using Owned = std::unique_ptr<Tensor, Delete<Tensor>>;

static_assert(row_of(DeviceKind::cpu).dlpack == kDLCPU);
static_assert(row_of(DeviceKind::cpu).dlpack_too == kDLCUDAHost);
static_assert(row_of(DeviceKind::cuda).dlpack == kDLCUDA);
static_assert(row_of(DeviceKind::cuda).dlpack_too == kDLCUDAManaged);

[[noreturn]] void refuse(const std::string& why, SourceLine source) {
  throw ValueError("from_dlpack: " + why + at_line(source));
}

DType dtype_of_tensor(const DLDataType& type, SourceLine source) {
  for (const auto& [dtype, element] : kElements) {
    if (type.lanes == 1 && type.bits > 0 && element == DlElement{type.code, type.bits})
      return dtype;
  }
  refuse("elements of type code " + std::to_string(type.code) + ", " + std::to_string(type.bits) +
             " bits and " + std::to_string(type.lanes) +
             " lanes: wanted bool, signed or unsigned integers of 8 to 64 bits, f16, bf16, f32 "
             "or f64, of one lane",
         source);
}

const LocalDevice& device_of(const DLDevice& device, SourceLine source) {
  Backend& backend = runtime().backend();
  const DeviceKindRow& kind = row_of(backend.kind());
  const bool readable = device.device_type == kind.dlpack || device.device_type == kind.dlpack_too;
  for (const LocalDevice& local : backend.devices()) {
    if (readable && (kind.host_memory || backend.native_number(local.index) == device.device_id))
      return local;
  }
  throw DeviceError("from_dlpack: the tensor lies on DLPack's device " +
                    std::to_string(device.device_id) + " of type " +
                    std::to_string(static_cast<int>(device.device_type)) +
                    ", and the devices of this process are " + runtime().device_string() +
                    ": move it to one of them first" + at_line(source));
}

struct Layout {
  Shape shape;
  StridedCopy box;  // copies from the tensor's layout to a row-major one
  bool contiguous = true;
};

Layout layout_of(const DLTensor& tensor, int item, SourceLine source) {
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank)
    refuse("a tensor of " + std::to_string(tensor.ndim) + " dims: an array has at most " +
               std::to_string(kMaxRank),
           source);
  if (tensor.ndim > 0 && tensor.shape == nullptr) refuse("a tensor without a shape", source);
  Layout layout;
  for (int d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] < 0)
      refuse(
          "dim " + std::to_string(d) + " has a negative extent, " + std::to_string(tensor.shape[d]),
          source);
    layout.shape.push_back(tensor.shape[d]);
  }
  checked_bytes(layout.shape, item);
  layout.box = box_copy(layout.shape, layout.shape, layout.shape, item);
  if (tensor.strides) {
    for (int d = 0; d < tensor.ndim; ++d) {
      std::int64_t bytes = 0;
      if (__builtin_mul_overflow(tensor.strides[d], static_cast<std::int64_t>(item), &bytes))
        refuse("dim " + std::to_string(d) + " has a stride of " +
                   std::to_string(tensor.strides[d]) + " elements",
               source);
      if (tensor.shape[d] > 1 && bytes != layout.box.src_stride[d]) layout.contiguous = false;
      layout.box.src_stride[d] = bytes;
    }
  }
  return layout;
}

template <class Tensor>
Array take(Tensor* given, SourceLine source) {
  Owned<Tensor> owned(given);
  ensure_started();
  detail::refuse_in_task("from_dlpack");
  if (capturing()) throw Error("from_dlpack while this thread captures a graph");
  const DLTensor& tensor = given->dl_tensor;
  const DType dtype = dtype_of_tensor(tensor.dtype, source);
  const int item = itemsize(dtype);
  const LocalDevice& local = device_of(tensor.device, source);
  Layout layout = layout_of(tensor, item, source);
  const std::int64_t bytes = checked_bytes(layout.shape, item);
  auto* data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  if (bytes > 0 && tensor.data == nullptr) refuse("a tensor of data at a null pointer", source);

  const detail::MeshImpl* mesh = detail::MeshImpl::single(local.device);
  StoredNode* node = StoredNode::make(ShapedArray(layout.shape, dtype, false, AxisSet()), mesh, 1);
  Array out = Array::of(node);
  node->sharding = mesh->replicated();
  BufferRef foreign = local.space->wrap(
      bytes > 0 ? data : nullptr, bytes,
      // A tensor without a deleter may be destroyed when this call returns.
      given->deleter == nullptr
          ? [](void*) noexcept {}
          : [](void* tensor) noexcept { Delete<Tensor>()(static_cast<Tensor*>(tensor)); },
      given);
  owned.release();
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(item) == 0;
  if (bytes == 0 || (layout.contiguous && aligned)) {
    node->blocks()[0].buffer = std::move(foreign);
    return out;
  }
  BufferRef copy = local.space->allocate(bytes);
  layout.box.src = data;
  layout.box.dst = copy->data();
  Backend& backend = mesh->backend();
  {
    std::lock_guard lock(backend.submit_mutex());
    Buffer* reads[] = {foreign.get()};
    Buffer* writes[] = {copy.get()};
    launch({local.compute, "from_dlpack", 0, bytes}, reads, writes,
           [box = layout.box, ops = &device_ops(backend)](int part, int parts, void* native) {
             ops->copy_box(box, part, parts, native);
           });
  }
  count(Counter::copies);
  count(Counter::copied_bytes, bytes);
  node->blocks()[0].buffer = std::move(copy);
  out.block_until_ready();  // the copy must be complete before the tensor is deleted
  return out;
}

// The objects that an exported tensor keeps alive.
template <class Tensor>
struct Exported {
  Array array;
  std::vector<std::int64_t> shape, strides;
  Tensor tensor = {};
};

const StoredNode& whole_on_one_device(const Array& x, const char* what) {
  const Node& node = checked_node(x, what);
  if (node.kind != NodeKind::stored || node.trace != 0) {
    throw TypeError(
        std::string(what) + ": a value of type " + to_string(node.type) +
        " has no memory of its own to hand out: it is a host scalar, a traced value or a "
        "block in a body");
  }
  const auto& stored = static_cast<const StoredNode&>(node);
  if (!stored.sharding->is_replicated()) {
    throw ValueError(std::string(what) + ": the array of type " + to_string(node.type) +
                     " is split over devices, and a tensor is on one device: gather the array with "
                     "device_put(x, device), or pass its addressable_shards() one by one");
  }
  return stored;
}

template <class Tensor>
Tensor* hand_out(const Array& x, const char* what) {
  ensure_started();
  detail::refuse_in_task(what);
  const StoredNode& stored = whole_on_one_device(x, what);
  const DType dtype = stored.type.dtype();
  const DlElement element = row_of(kElements, dtype);
  if (element.bits == 0)
    throw TypeError(std::string(what) + ": DLPack has no elements of dtype " + short_name(dtype));
  x.block_until_ready({});
  auto kept = std::make_unique<Exported<Tensor>>();
  kept->array = x;  // a further owner, so that nothing writes to the memory in place
  const Shape& dims = stored.type.dims();
  kept->shape.assign(dims.begin(), dims.end());
  kept->strides.resize(dims.size());
  std::int64_t stride = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    kept->strides[d] = stride;
    stride *= std::max<std::int64_t>(dims[d], 1);
  }
  const LocalDevice& local = stored.mesh->local(0);
  const Backend& backend = stored.mesh->backend();
  DLTensor& tensor = kept->tensor.dl_tensor;
  tensor.data = stored.blocks()[0].data();
  tensor.device.device_type = static_cast<DLDeviceType>(row_of(backend.kind()).dlpack);
  tensor.device.device_id = backend.native_number(local.index);
  tensor.ndim = static_cast<std::int32_t>(dims.size());
  tensor.dtype = {element.code, element.bits, 1};
  tensor.shape = kept->shape.data();
  tensor.strides = kept->strides.data();
  kept->tensor.manager_ctx = kept.get();
  kept->tensor.deleter = [](Tensor* self) {
    delete static_cast<Exported<Tensor>*>(self->manager_ctx);
  };
  return &kept.release()->tensor;
}

}  // namespace

Array from_dlpack(DLManagedTensor* tensor, SourceLine source) {
  if (tensor == nullptr) refuse("a null pointer", source);
  return take(tensor, source);
}

Array from_dlpack(DLManagedTensorVersioned* tensor, SourceLine source) {
  if (tensor == nullptr) refuse("a null pointer", source);
  if (tensor->version.major != DLPACK_MAJOR_VERSION) {
    const std::uint32_t major = tensor->version.major;
    // the deleter is at the same offset in every version
    Delete<DLManagedTensorVersioned>()(tensor);
    refuse("a tensor of version " + std::to_string(major) +
               ".x of DLPack, and this library knows " + std::to_string(DLPACK_MAJOR_VERSION) +
               ".x",
           source);
  }
  return take(tensor, source);
}

DLManagedTensor* to_dlpack(const Array& x) { return hand_out<DLManagedTensor>(x, "to_dlpack"); }

DLManagedTensorVersioned* to_dlpack_versioned(const Array& x) {
  DLManagedTensorVersioned* tensor = hand_out<DLManagedTensorVersioned>(x, "to_dlpack_versioned");
  tensor->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  tensor->flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  return tensor;
}

}  // namespace shmap
