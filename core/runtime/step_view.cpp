#include "core/runtime/step_view.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/array/mesh_impl.h"
#include "core/base/inline_vector.h"
#include "core/device/backend.h"
#include "core/ir/node.h"
#include "core/ir/primitive.h"
#include "core/runtime/launch.h"

namespace shmap {

namespace {

// Whether nothing but this table names one of its buffers.
bool owns_a_buffer(std::span<const Block> table) {
  InlineVector<const Buffer*, 16> buffers(table.size());  // each as often as the table names it
  std::ranges::transform(table, buffers.begin(), [](const Block& b) { return b.buffer.get(); });
  std::ranges::sort(buffers.span());
  std::int32_t entries = 0;  // of the current buffer
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    ++entries;
    const bool last = k + 1 == buffers.size() || buffers[k + 1] != buffers[k];
    if (last && buffers[k]->use_count() == entries) return true;
    if (last) entries = 0;
  }
  return false;
}

}  // namespace

bool run_as_view(const Step& step, Types out_types, std::span<StoredNode* const> out) {
  if (step.in.empty()) return false;
  const StoredNode* in = stored_of(step.in[0]);
  if (!in) return false;
  const std::int64_t offset = step.primitive.view(step.in_types[0], step.params, out_types[0]);
  if (offset < 0) return false;
  for (std::uint32_t p = 0; p < in->count; ++p) {
    out[0]->blocks()[p] = in->blocks()[p];
    out[0]->blocks()[p].offset += offset;
  }
  return true;
}

bool run_as_dynamic_view(const Step& step, Types out_types, std::span<StoredNode* const> out) {
  constexpr std::int64_t kLeastPart = 16;
  if (capturing() || !step.mesh.backend().host_addressable()) return false;
  const StoredNode* whole = stored_of(step.in[0]);
  if (!whole || out_types[0].nbytes() * kLeastPart < step.in_types[0].nbytes()) return false;
  InlineVector<const void*, 4> data(step.in.size());
  InlineVector<std::int64_t, 16> offsets(whole->count);
  std::lock_guard lock(step.mesh.backend().submit_mutex());
  if (owns_a_buffer(whole->blocks())) return false;
  for (std::uint32_t p = 0; p < whole->count; ++p) {
    for (std::size_t i = 1; i < step.in.size(); ++i) {
      const Node* node = node_of(step.in[i]);
      if (node->kind == NodeKind::literal) {
        data[i] = static_cast<const LiteralNode*>(node)->value;
        continue;
      }
      const Block& scalar = static_cast<const StoredNode*>(node)->blocks()[p];
      if (!detail::settled(scalar.buffer->def())) return false;
      data[i] = scalar.data();
    }
    const std::int64_t offset =
        step.primitive.dynamic_view(step.in_types, data.span(), step.params, out_types[0]);
    if (offset < 0) return false;
    offsets[p] = offset;
  }
  // The views are entered once all offsets are known: a kernel that has to run needs an empty
  // table.
  for (std::uint32_t p = 0; p < whole->count; ++p) {
    Block& part = out[0]->blocks()[p];
    part = whole->blocks()[p];
    part.offset += offsets[p];
  }
  return true;
}

}  // namespace shmap
