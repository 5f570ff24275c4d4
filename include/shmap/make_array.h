// Sharded arrays whose blocks a function of the user fills one by one, so that neither a device nor
// a process ever needs the whole array in its memory (jax.make_array_from_callback).
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "shmap/array.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/shape.h"
#include "shmap/slice.h"

namespace shmap {

namespace detail {
Array make_array(DType dtype, const Shape& shape, const NamedSharding& sharding,
                 const std::function<void(std::span<const Slice>, void*)>& fill, SourceLine source);
}

// Makes an array of the given shape and sharding. `fill` is called on the calling thread, once for
// each distinct block in each memory space of this process; devices of a memory space that have the
// same block share it. `index` has a slice for each dim, which together say what part of the array
// the block is. `fill` writes the elements of that part to `block` in row-major order; the contents
// of `block` are undefined before. On a mesh of several processes, `fill` is called in each process
// only for the blocks of that process; where two processes have the same block, both must write the
// same values. The call returns when all blocks are written. An exception that `fill` throws ends
// the call and propagates from it. ValueError where the sharding does not fit the shape, and where
// `fill` is empty.
template <Element T>
Array make_array_from_callback(
    const Shape& shape, const NamedSharding& sharding,
    const std::function<void(std::span<const Slice> index, std::span<T> block)>& fill,
    SourceLine source = SourceLine::current()) {
  if (!fill) return detail::make_array(dtype_of<T>, shape, sharding, nullptr, source);
  return detail::make_array(
      dtype_of<T>, shape, sharding,
      [&](std::span<const Slice> index, void* block) {
        std::size_t count = 1;
        for (const Slice& s : index) count *= static_cast<std::size_t>(s.stop - s.start);
        fill(index, std::span<T>(static_cast<T*>(block), count));
      },
      source);
}

}  // namespace shmap
