// enter_blocks: fills the table of a stored value with blocks that others own too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/ir/node.h"

namespace shmap {

// Enters the block at(p) as entry p of the table, whose entries are empty. Neighbours often share a
// buffer, whose owners are then counted together.
template <class At>
void enter_blocks(std::span<Block> table, At at) {
  for (std::size_t p = 0; p < table.size();) {
    Buffer* const buffer = at(p).buffer.get();
    const std::size_t first = p;
    for (; p < table.size() && at(p).buffer.get() == buffer; ++p) {
      table[p].buffer = BufferRef::adopt(buffer);
      table[p].offset = at(p).offset;
    }
    if (buffer != nullptr) buffer->add_refs(static_cast<std::int32_t>(p - first));
  }
}

}  // namespace shmap
