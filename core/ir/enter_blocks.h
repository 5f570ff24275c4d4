// enter_blocks: fills the table of a stored value with blocks that other values own too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "core/ir/node.h"

namespace shmap {

// Sets each entry p of the table, whose entries are empty, to the block at(p), and adds the table
// as an owner of the blocks' buffers. Neighbouring entries often share a buffer; its owners are
// then added with one atomic operation. at(p) is called once for each entry, in order.
template <class At>
void enter_blocks(std::span<Block> table, At at) {
  Buffer* buffer = nullptr;  // of the latest entries
  std::int32_t entries = 0;
  const auto own = [&] {
    if (buffer != nullptr) buffer->add_refs(entries);
  };
  for (std::size_t p = 0; p < table.size(); ++p) {
    const auto& block = at(p);
    if (block.buffer.get() != buffer) {
      own();
      buffer = block.buffer.get();
      entries = 0;
    }
    ++entries;
    // Constructed, and not assigned, which would look for an owner to drop.
    ::new (&table[p]) Block{BufferRef::adopt(buffer), block.offset};
  }
  own();
}

}  // namespace shmap
