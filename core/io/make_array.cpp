// Arrays whose blocks a function of the program writes.
#include "shmap/make_array.h"

#include "core/io/array_blocks.h"
#include "core/runtime/launch.h"

namespace shmap::detail {

Array make_array(DType dtype, const Shape& shape, const NamedSharding& sharding,
                 const std::function<void(std::span<const Slice>, void*)>& fill,
                 SourceLine source) {
  const char* const name = "make_array_from_callback";
  ensure_started();
  refuse_in_task(name);
  if (!fill) {
    throw ValueError(
        std::string(name) +
        ": the callback is an empty function: wanted a function that takes the index of "
        "a block in the array and writes the block's elements" +
        at_line(source));
  }
  const ShapedArray type(shape, dtype, false, AxisSet());
  const Sharding* split = sharding.mesh().impl()->sharding(sharding.spec());
  try {
    checked_bytes(split->block_shape(shape, name), itemsize(dtype));
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  }
  const FileOptions nobody_watches;
  io::ProgressCount progress(nobody_watches, 0);
  return io::read_blocks(type, split, true, name, /*in_pieces=*/false, progress, fill);
}

}  // namespace shmap::detail
