#include "core/runtime/fixed_inputs.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/array/mesh_impl.h"
#include "core/base/counters.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/launch.h"
#include "core/runtime/reshard.h"

namespace shmap {

namespace {

// Estimates for one core, which decide whether a copy is queued and into how many parts it is
// split.
constexpr double kBytesPerNs = 10;
constexpr std::int64_t kPartBytes = 256 << 10;

}  // namespace

FixedInputs::FixedInputs(const detail::MeshImpl& mesh, std::vector<ShapedArray> block_types)
    : mesh_(mesh), block_types_(std::move(block_types)), inputs_(block_types_.size()) {}

std::vector<std::uint32_t> FixedInputs::leaders(const Array& value) const {
  const std::span<const Block> blocks = stored_of(value)->blocks();
  std::vector<std::uint32_t> leaders(blocks.size());
  for (std::uint32_t p = 0; p < blocks.size(); ++p) {
    const auto first = std::find_if(blocks.begin(), blocks.begin() + p,
                                    [&](const Block& b) { return b.data() == blocks[p].data(); });
    leaders[p] = static_cast<std::uint32_t>(first - blocks.begin());
  }
  return leaders;
}

std::int64_t FixedInputs::bytes(std::size_t input, const Array& value) const {
  const std::vector<std::uint32_t> leader = leaders(value);
  std::int64_t distinct = 0;
  for (std::uint32_t p = 0; p < leader.size(); ++p) distinct += leader[p] == p;
  return distinct * block_types_[input].nbytes();
}

void FixedInputs::add(std::size_t input, const Array& value) {
  const StoredNode& node = *stored_of(value);
  Fixed made;
  made.leader = leaders(value);
  if (inputs_[input].is_there)
    for (std::uint32_t p = 0; p < made.leader.size(); ++p) made.leader[p] = p;
  made.value = relabel(node, node.type, node.sharding, node.trace, node.committed);
  const std::span<Block> blocks = stored_of(made.value)->blocks();
  const std::int64_t block_bytes = block_types_[input].nbytes();
  for (std::uint32_t p = 0; p < blocks.size(); ++p) {
    if (made.leader[p] != p) {
      blocks[p] = blocks[made.leader[p]];
      continue;
    }
    blocks[p].buffer = mesh_.local(p).space->allocate(block_bytes);
    blocks[p].offset = 0;
    made.bytes += block_bytes;
  }
  bytes_ += made.bytes - inputs_[input].bytes;
  made.is_there = true;
  inputs_[input] = std::move(made);
}

void FixedInputs::clear() noexcept {
  for (Fixed& input : inputs_) input = Fixed();
  bytes_ = 0;
}

bool FixedInputs::fit(std::size_t input, const Array& value) const {
  const std::vector<std::uint32_t>& leader = inputs_[input].leader;
  const std::span<const Block> blocks = stored_of(value)->blocks();
  for (std::uint32_t p = 0; p < blocks.size(); ++p)
    if (blocks[p].data() != blocks[leader[p]].data()) return false;
  return true;
}

void FixedInputs::fill(const std::vector<Array>& inputs) {
  const DeviceOps& ops = device_ops(mesh_.backend());
  const std::int64_t workers = std::max(mesh_.backend().workers(), 1);
  std::lock_guard lock(mesh_.backend().submit_mutex());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs_[i].is_there || block_types_[i].nbytes() == 0) continue;
    const std::span<Block> from = stored_of(inputs[i])->blocks();
    const std::span<Block> to = stored_of(inputs_[i].value)->blocks();
    const std::int64_t bytes = block_types_[i].nbytes();
    for (std::uint32_t p = 0; p < to.size(); ++p) {
      if (inputs_[i].leader[p] != p) continue;
      // What was copied here before, and the launches that read it, do not concern this copy.
      to[p].buffer->retire_definition();
      Buffer* reads[] = {from[p].buffer.get()};
      Buffer* writes[] = {to[p].buffer.get()};
      LaunchSpec spec;
      spec.stream = mesh_.local(p).compute;
      spec.name = "copy to a fixed place";
      spec.bytes = bytes;
      spec.cost_ns = static_cast<std::int64_t>(static_cast<double>(bytes) / kBytesPerNs);
      spec.parts = static_cast<int>(std::clamp(bytes / kPartBytes, std::int64_t{1}, workers));
      launch(
          spec, reads, writes,
          [&ops, src = static_cast<const std::byte*>(from[p].data()),
           dst = static_cast<std::byte*>(to[p].data()), bytes](int part, int parts, void* native) {
            const std::int64_t begin = bytes / 64 * part / parts * 64;
            const std::int64_t end =
                part + 1 == parts ? bytes : bytes / 64 * (part + 1) / parts * 64;
            if (begin < end) ops.copy(dst + begin, src + begin, end - begin, native);
          });
      count(Counter::copies);
      count(Counter::copied_bytes, bytes);
    }
  }
}

std::vector<Array> FixedInputs::in_place_of(const std::vector<Array>& inputs) const {
  std::vector<Array> all = inputs;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (inputs_[i].is_there) all[i] = inputs_[i].value;
  return all;
}

}  // namespace shmap
