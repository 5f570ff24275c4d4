// The operations on raw memory that a backend provides beside its kernels: one table for each
// backend, filled at registration.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/base/combined_piece.h"
#include "core/base/intrusive.h"
#include "core/base/reduction_ops.h"
#include "core/base/strided_copy.h"
#include "core/device/backend.h"
#include "core/ir/primitive.h"
#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap {

struct AttentionForm;  // core/ops/attention.h

// Host code that reads values as a part of a stream's work.
class HostReader : public RefCounted {
 public:
  virtual ~HostReader() = default;
  // `values`: the addresses of the requested values, valid during the call. Called in stream order,
  // on the thread that runs the stream, and once for each launch of a graph that recorded it. Must
  // not enqueue, wait or allocate.
  virtual void read(std::span<const void* const> values) const = 0;
};
struct HostRead {
  const void* from = nullptr;  // on the device
  std::int64_t bytes = 0;
};

// A copy of a whole block from the memory space of one device to that of another. The devices are
// numbered among those of the backend (LocalDevice::index).
struct SpaceCopy {
  void* dst;
  const void* src;
  std::int64_t bytes;
  int from, to;
};

// What each backend must have: at the library's start, an entry that is null is an error. Functions
// with the parameter `native` (KernelCall::native) are called in tasks.
struct RequiredDeviceOps {
  // Copies part `part` of `parts`.
  void (*copy_box)(const StridedCopy& copy, int part, int parts, void* native) = nullptr;
  // out[begin, end) = the balanced binary tree over `n` ranks, in order (distance 1, 2, 4, …; ranks
  // past the last power of two fold in first): the same bits for every layout of processes. out may
  // be one of the ranks.
  void (*combine)(Reduction op, DType dtype, const void* const* ranks, int n, void* out,
                  std::int64_t begin, std::int64_t end, void* native) = nullptr;
  void (*zero)(void* dst, std::int64_t bytes, void* native) = nullptr;
  void (*copy)(void* dst, const void* src, std::int64_t bytes, void* native) = nullptr;
  // Copies a part of an array that is larger than every cache: writes past the caches.
  void (*copy_streaming)(void* dst, const void* src, std::int64_t bytes, void* native) = nullptr;
  // Blocking; the memory must not be used by pending work.
  void (*host_to_device)(void* dst, const void* src, std::int64_t bytes) = nullptr;
  void (*device_to_host)(void* dst, const void* src, std::int64_t bytes) = nullptr;
  // Called in a task: in the task's stream, passes the values to the reader. What read() throws
  // fails the task, or is rethrown by Backend::synchronize() if the task has ended by then.
  void (*read_on_host)(std::span<const HostRead> values, const Ref<HostReader>& reader,
                       void* native) = nullptr;
};

// The other entries may be null.
struct DeviceOps : RequiredDeviceOps {
  // Makes the same copy between `n` pairs of addresses, from[i] to to[i], in one piece of work;
  // box.src and box.dst are ignored. Null: callers make one copy for each pair.
  void (*copy_boxes)(const StridedCopy& box, const void* const* from, void* const* to, int n,
                     void* native) = nullptr;
  // The same as combine(), for pieces of `rows` rows that lie apart in the ranks' memory:
  // piece.out[row * length + i] = the tree over ranks[r][row * stride + piece.first + i], in
  // elements. Null: callers call combine() for each row of each piece.
  void (*combine_pieces)(Reduction op, DType dtype, const void* const* ranks, int n,
                         std::span<const CombinedPiece> pieces, std::int64_t rows,
                         std::int64_t length, std::int64_t stride, void* native) = nullptr;
  // Copies a whole block from another memory space. Null: callers use copy().
  void (*copy_between_spaces)(void* dst, const void* src, std::int64_t bytes,
                              void* native) = nullptr;
  // Starts a copy between memory spaces that a link makes, without a thread of the backend: *end is
  // told when the block has arrived. Where `end` is null, returns when it has arrived. Null, as in
  // each backend: the copy is a task of the receiver's stream, made by copy_between_spaces or
  // copy(). For links with a bandwidth of their own (bench/support/slow_link.h).
  void (*start_space_copy)(const SpaceCopy& copy, TaskEnd* end) = nullptr;
  // Compiles a kernel that is given as source text, once, and enqueues its function `kernel` on
  // `stream`, on the calling thread's current device; `args` is the kernel's only parameter. Throws
  // DeviceError with the compiler's messages. Null: the backend compiles no source.
  void (*launch_source)(const std::string& source, const char* kernel, std::int64_t blocks,
                        int threads, const void* args, void* stream) = nullptr;
  // True if the backend's kernel of attention is faster in such a call than the operations that the
  // kernel replaces. Null: there is no such kernel.
  bool (*attends)(const AttentionForm& form) = nullptr;
};

DeviceOps& device_ops(DeviceKind kind);
inline const DeviceOps& device_ops(const Backend& backend) { return device_ops(backend.kind()); }
// Throws Error where a backend of one of these kinds lacks an entry of RequiredDeviceOps; names all
// of them. Called at the library's start.
void check_device_ops(std::span<const DeviceKind> kinds);

}  // namespace shmap
