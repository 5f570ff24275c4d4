// Sharded arrays whose blocks the program makes one by one, so that neither a device nor a process
// ever needs the whole array in its memory (jax.make_array_from_callback).
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

// An array of that shape and sharding. `fill` is called on this thread for each different block of
// the devices of this process, once for each of their memory spaces: it gets the part of the array
// that the block is, a slice for each dim, and writes the part's elements, row-major, to `block`,
// whose contents are undefined before. Blocks that a memory space has already are shared. On a mesh
// of several processes each process is asked for its own blocks alone; where two processes have the
// same block, both must write the same values. Blocks until all blocks are written. An exception of
// `fill` ends the call and propagates from it. ValueError where the sharding does not fit the
// shape, and where `fill` is empty.
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
