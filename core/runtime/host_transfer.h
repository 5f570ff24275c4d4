// Between arrays and host memory. Reading waits for the value and rethrows what its computation
// threw.
#pragma once
#include <atomic>
#include <cstddef>
#include <vector>

#include "core/ir/node.h"
#include "shmap/array.h"

namespace shmap {

// Waits until every block of a stored value is there.
void wait_for(const StoredNode& node);

// A new uncommitted array on the default device with a copy of row-major host memory.
Array array_from_host(const void* data, DType dtype, const Shape& shape);

// The whole value, row-major: of a literal, a fully addressable concrete array, or a value inside a
// body that is the same on every device. TypeError where it has no value yet or varies; ValueError
// where parts lie in another process. `what` names the call in errors; they say which operation
// gave the value, which transform is at work, and the caller's line, as far as these are known.
std::vector<std::byte> copy_to_host(const Array& x, const char* what, SourceLine source = {});

namespace detail {
// For tests of one process that run as several, all of which read the same: what copy_to_host of an
// array that lies in several processes reads instead (process_allgather). Null: it throws.
extern std::atomic<Array (*)(const Array&)> read_by_gathering;
}  // namespace detail

// One local device's block, row-major.
std::vector<std::byte> block_to_host(const StoredNode& node, std::uint32_t local);

}  // namespace shmap
