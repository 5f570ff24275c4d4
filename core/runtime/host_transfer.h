// Copies between arrays and host memory. Reading waits for the value, and rethrows the error of its
// computation.
#pragma once
#include <atomic>
#include <cstddef>
#include <vector>

#include "core/ir/node.h"
#include "shmap/array.h"

namespace shmap {

// Waits until every block of a stored value has been computed.
void wait_for(const StoredNode& node);

// Copies row-major host memory to a new uncommitted array on the default device.
Array array_from_host(const void* data, DType dtype, const Shape& shape);

// The whole value, row-major: of a literal, of a fully addressable concrete array, or of a value in
// a body that is equal on all devices. TypeError where the value is traced or varies over devices;
// ValueError where another process has part of it. `what` names the call in errors, which also name
// the operation that computed the value, the transform in progress, and the caller's line, as far
// as these are known.
std::vector<std::byte> copy_to_host(const Array& x, const char* what, SourceLine source = {});

namespace detail {
// For tests that are written for one process and run in several, all of which read the same values:
// copy_to_host calls it (process_allgather) for an array that lies in several processes. Null, as
// in every program of a user: copy_to_host throws. The hook is here because reads are everywhere
// (to_vector, item, conversions to bool, predicates of loops, printing), most of them inside of the
// library, and because gathering takes collectives, of rooms above this one.
extern std::atomic<Array (*)(const Array&)> read_by_gathering;
}  // namespace detail

// One local device's block, row-major.
std::vector<std::byte> block_to_host(const StoredNode& node, std::uint32_t local);

}  // namespace shmap
