// What every backend can do with raw memory, beside its kernels: one table a backend, filled at
// registration.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/intrusive.h"
#include "core/base/reduction_ops.h"
#include "core/device/backend.h"
#include "core/ir/primitive.h"
#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap {

// Copies an n-dimensional box between two strided places; strides in bytes.
struct BoxCopy {
  int rank = 0;
  std::int64_t extent[kMaxRank];
  std::int64_t dst_stride[kMaxRank];
  std::int64_t src_stride[kMaxRank];
  int itemsize = 1;
  const void* src = nullptr;
  void* dst = nullptr;
};

// What looks at values on the host as a part of a stream's work.
class HostReader : public RefCounted {
 public:
  virtual ~HostReader() = default;
  // `values`: the bytes of each that was asked for, good during the call. Comes when the stream
  // does, on a thread of whoever runs it, and for each launch of a graph that recorded it. Must not
  // enqueue, wait or allocate.
  virtual void read(std::span<const void* const> values) const = 0;
};
struct HostRead {
  const void* from = nullptr;  // on the device
  std::int64_t bytes = 0;
};

struct DeviceOps {
  // Part `part` of `parts`.
  void (*copy_box)(const BoxCopy& copy, int part, int parts, void* native) = nullptr;
  // The same copy between `n` pairs of places, from[i] to to[i], in one piece of work; box.src and
  // box.dst are not read. Null: a copy for each serves as well.
  void (*copy_boxes)(const BoxCopy& box, const void* const* from, void* const* to, int n,
                     void* native) = nullptr;
  // out[begin, end) = the balanced binary tree over `n` ranks, in order (distance 1, 2, 4, …; ranks
  // past the last power of two fold in first): the same bits whatever the process layout. out may
  // be one of the ranks.
  void (*combine)(Reduction op, DType dtype, const void* const* ranks, int n, void* out,
                  std::int64_t begin, std::int64_t end, void* native) = nullptr;
  // The same of `rows` rows that lie apart in the ranks' memory: out[row * length + i] = the tree
  // over ranks[r][row * stride + i], in elements. Null: there combine() a row at a time serves as
  // well.
  void (*combine_rows)(Reduction op, DType dtype, const void* const* ranks, int n, void* out,
                       std::int64_t rows, std::int64_t length, std::int64_t stride,
                       void* native) = nullptr;
  void (*zero)(void* dst, std::int64_t bytes, void* native) = nullptr;
  void (*copy)(void* dst, const void* src, std::int64_t bytes, void* native) = nullptr;
  // A copy of a part of so much that no cache will hold it: written past them.
  void (*copy_streaming)(void* dst, const void* src, std::int64_t bytes, void* native) = nullptr;
  // A copy of a block of another memory space, as a whole. Null: copy() serves as well.
  void (*copy_between_spaces)(void* dst, const void* src, std::int64_t bytes,
                              void* native) = nullptr;
  // Blocking; for memory that nothing pending touches.
  void (*host_to_device)(void* dst, const void* src, std::int64_t bytes) = nullptr;
  void (*device_to_host)(void* dst, const void* src, std::int64_t bytes) = nullptr;
  // For a task: in its stream, shows the values to the reader. What that throws fails the task, or
  // is rethrown by Backend::synchronize() where the task has ended by then.
  void (*read_on_host)(std::span<const HostRead> values, const Ref<HostReader>& reader,
                       void* native) = nullptr;
};

DeviceOps& device_ops(DeviceKind kind);
inline const DeviceOps& device_ops(const Backend& backend) { return device_ops(backend.kind()); }

// A contiguous row-major box inside another: sets extents and strides.
void set_strides(BoxCopy& copy, const Shape& extent, const Shape& dst_shape, const Shape& src_shape,
                 int itemsize);

}  // namespace shmap
