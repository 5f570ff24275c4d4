#include "core/runtime/reshard.h"

#include <algorithm>
#include <map>

#include "core/base/counters.h"
#include "core/ir/trace.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/host_constant.h"
#include "core/runtime/launch.h"

namespace shmap {

namespace {

constexpr double kCopyBytesPerNs = 10;

// The region of the whole array that a block holds.
struct Region {
  std::int64_t start[kMaxRank];
};

// The byte offset of the region `box` with extents `extent` in the block `block` with extents
// `shape`, if the region is contiguous there; else -1.
std::int64_t contiguous_offset(const Shape& extent, const Region& box, const Shape& shape,
                               const Region& block, int itemsize) {
  std::int64_t offset = 0, stride = itemsize;
  bool full_below = true;  // all dims further in are taken whole
  for (std::size_t d = extent.size(); d-- > 0;) {
    const std::int64_t at = box.start[d] - block.start[d];
    if (at < 0 || at + extent[d] > shape[d]) return -1;
    offset += at * stride;
    stride *= shape[d];
    if (!full_below && extent[d] != 1) return -1;
    if (extent[d] != shape[d]) full_below = false;
  }
  return offset;
}

class Mover {
 public:
  Mover(const StoredNode& from, const Sharding* target, const Shape& to_block)
      : from_(from),
        source_(from.sharding),
        target_(target),
        from_block_(source_->block_shape(from.type.dims(), "")),
        to_block_(to_block),
        itemsize_(itemsize(from.type.dtype())) {
    for (std::uint32_t q = 0; q < from.count; ++q) {
      regions_.emplace_back();
      source_->block_start(q, from_block_, regions_.back().start);
    }
  }

  void fill(std::uint32_t position, Block& out) {
    Region box;
    target_->block_start(position, to_block_, box.start);
    const LocalDevice& device = target_->mesh()->local(position);
    // Devices of one memory space that need the same region share one block.
    std::vector<std::int64_t> key(box.start, box.start + to_block_.size());
    key.push_back(device.space->id());
    const auto [it, fresh] = made_.emplace(std::move(key), Block());
    if (fresh) it->second = make(device, box);
    out = it->second;
  }

 private:
  Block make(const LocalDevice& device, const Region& box) {
    for (std::uint32_t q = 0; q < from_.count; ++q) {
      if (from_.mesh->local(q).space != device.space) continue;
      const std::int64_t offset =
          contiguous_offset(to_block_, box, from_block_, regions_[q], itemsize_);
      if (offset < 0) continue;
      Block shared = from_.blocks()[q];
      shared.offset += offset;
      return shared;
    }
    Block fresh;
    fresh.buffer =
        device.space->allocate(checked_bytes(to_block_, itemsize_), MemorySpace::For::tasks);
    copy_pieces(device, box, fresh);
    return fresh;
  }

  // For each distinct old region that intersects the box, copies from one device that holds the
  // region, if possible from one of the same memory space.
  void copy_pieces(const LocalDevice& device, const Region& box, Block& to) {
    std::map<std::vector<std::int64_t>, std::uint32_t> holders;
    for (std::uint32_t q = 0; q < from_.count; ++q) {
      std::vector<std::int64_t> key(regions_[q].start, regions_[q].start + from_block_.size());
      const auto [it, fresh] = holders.emplace(std::move(key), q);
      if (!fresh && from_.mesh->local(q).space == device.space) it->second = q;
    }
    for (const auto& [start, q] : holders) copy_piece(device, box, q, to);
  }

  void copy_piece(const LocalDevice& device, const Region& box, std::uint32_t q, Block& to) {
    Shape extent = to_block_;
    std::int64_t src_at = 0, dst_at = 0, src_stride = itemsize_, dst_stride = itemsize_;
    for (std::size_t d = extent.size(); d-- > 0;) {
      const std::int64_t lo = std::max(box.start[d], regions_[q].start[d]);
      const std::int64_t hi =
          std::min(box.start[d] + to_block_[d], regions_[q].start[d] + from_block_[d]);
      if (hi <= lo) return;
      extent[d] = hi - lo;
      src_at += (lo - regions_[q].start[d]) * src_stride;
      dst_at += (lo - box.start[d]) * dst_stride;
      src_stride *= from_block_[d];
      dst_stride *= to_block_[d];
    }
    const Block& from = from_.blocks()[q];
    StridedCopy copy = box_copy(extent, from_block_, to_block_, itemsize_);
    copy.src = static_cast<const std::byte*>(from.data()) + src_at;
    copy.dst = static_cast<std::byte*>(to.data()) + dst_at;
    const std::int64_t bytes = checked_bytes(extent, itemsize_);
    LaunchSpec spec;
    spec.stream = device.comm;
    spec.name = "copy";
    spec.bytes = bytes;
    spec.cost_ns = static_cast<std::int64_t>(static_cast<double>(bytes) / kCopyBytesPerNs);
    Buffer* reads[] = {from.buffer.get()};
    Buffer* writes[] = {to.buffer.get()};
    launch(spec, reads, writes,
           [copy, ops = &device_ops(from_.mesh->backend())](int part, int parts, void* native) {
             ops->copy_box(copy, part, parts, native);
           });
    count(Counter::copies);
    count(Counter::copied_bytes, bytes);
  }

  const StoredNode& from_;
  const Sharding* source_;
  const Sharding* target_;
  Shape from_block_;
  Shape to_block_;
  int itemsize_;
  std::vector<Region> regions_;
  std::map<std::vector<std::int64_t>, Block> made_;
};

}  // namespace

Array as_stored(Array x, const detail::MeshImpl* mesh) {
  if (node_of(x)->kind != NodeKind::literal) return x;
  const auto& literal = static_cast<const LiteralNode&>(*node_of(x));
  ensure_started();
  StoredNode* node = StoredNode::make(literal.type, mesh, mesh->local_count());
  Array out = Array::of(node);
  node->sharding = mesh->replicated();
  const std::int64_t bytes = itemsize(literal.type.dtype());
  const Cohorts& cohorts = mesh->cohorts(0);
  for (std::uint32_t p : cohorts.leaders) {
    Block& block = node->blocks()[p];
    block.buffer = mesh->local(p).space->allocate(bytes);
    write_constant(mesh->backend(), mesh->local(p), *block.buffer, literal.value, bytes);
  }
  for (std::uint32_t p = 0; p < node->count; ++p)
    if (cohorts.leader[p] != p) node->blocks()[p] = node->blocks()[cohorts.leader[p]];
  return out;
}

Array relabel(const StoredNode& node, const ShapedArray& type, const Sharding* sharding,
              std::uint64_t trace, bool committed) {
  StoredNode* copy = StoredNode::make(type, node.mesh, node.count);
  Array out = Array::of(copy);
  copy->sharding = sharding;
  copy->trace = trace;
  copy->committed = committed;
  copy->origin = node.origin;
  share_blocks(node.blocks(), copy->blocks());
  return out;
}

Array relabel(Array&& x, const ShapedArray& type, const Sharding* sharding, std::uint64_t trace,
              bool committed) {
  StoredNode& node = *stored_of(x);
  if (node.refs.load(std::memory_order_acquire) != 1)
    return relabel(std::as_const(node), type, sharding, trace, committed);
  node.type = type;
  node.sharding = sharding;
  node.trace = trace;
  node.committed = committed;
  return std::move(x);
}

namespace {
Array reshard_here(const Array& x, const Sharding* target, const std::string& what,
                   SourceLine source) {
  Node& base = checked_node(x, what.c_str(), source);
  if (base.kind == NodeKind::literal) {
    target->block_shape(base.type.dims(), what);
    return as_stored(x, target->mesh());
  }
  if (base.kind != NodeKind::stored || base.trace != 0) throw_escaped(base, what.c_str(), source);
  auto& from = static_cast<StoredNode&>(base);
  if (from.sharding == target) return x;
  detail::refuse_in_task("reshard");
  if (!from.mesh->fully_addressable() && from.count == 0 && target->mesh()->local_count() != 0) {
    throw ValueError(what + ": an array of type " + to_string(from.type) + " lies on " +
                     describe_mesh(*from.mesh) +
                     ", which other processes drive, so this process has nothing of it: bring "
                     "it to a mesh of all processes in those that have it" +
                     at_line(source));
  }
  const Shape block = target->block_shape(from.type.dims(), what);
  StoredNode* node = StoredNode::make(from.type, target->mesh(), target->mesh()->local_count());
  Array out = Array::of(node);
  node->sharding = target;
  node->committed = from.committed;
  node->origin = from.origin;
  Mover mover(from, target, block);
  std::lock_guard lock(target->mesh()->backend().submit_mutex());
  for (std::uint32_t p = 0; p < node->count; ++p) mover.fill(p, node->blocks()[p]);
  return out;
}

}  // namespace

bool has_blocks_elsewhere(const Array& x, const Sharding* target) {
  const StoredNode* node = node_of(x) ? stored_of(x) : nullptr;
  // What one device has is the whole array: no collective brings it to other processes.
  return node && node->trace == 0 && node->sharding != target && !node->mesh->fully_addressable() &&
         !node->mesh->is_single() && !node->sharding->is_replicated();
}

Array reshard_by_copies(const Array& x, const Sharding* target, const std::string& what,
                        SourceLine source) {
  try {
    return reshard_here(x, target, what, source);
  } catch (const OutOfMemory& e) {
    rethrow_at(e, what.c_str(), source);
  }
}

}  // namespace shmap
