// enter_blocks: fills the table of a stored value with blocks that other values own too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/ir/node.h"

namespace shmap {

// Sets each entry p of the table, whose entries are empty, to the block at(p), and adds the table
// as an owner of the blocks' buffers. Neighbouring entries often share a buffer; its owners are
// then added with one atomic operation.
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
