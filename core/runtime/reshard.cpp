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
      here_[from.mesh->local(q).space].push_back(q);
    }
  }

  void fill(std::uint32_t position, Block& out) {
    Region box;
    target_->block_start(position, to_block_, box.start);
    const LocalDevice& device = target_->mesh()->local(position);
    // Devices of one memory space that need the same region share one block.
    const std::vector<std::int64_t> key(box.start, box.start + to_block_.size());
    const auto [it, fresh] = made_.emplace(std::pair(key, device.space), Block());
    if (fresh) it->second = make(device, box, key);
    out = it->second;
  }

 private:
  using Key = std::vector<std::int64_t>;  // a box

  // A block with this region: an old one of the device's memory space, where one has it. Otherwise
  // a fresh one, which the first device of each hardware device puts together; those that have
  // memory of their own there copy it, as in collectives (CliqueTable::teams).
  Block make(const LocalDevice& device, const Region& box, const Key& key) {
    Block& first = first_[{key, target_->mesh()->backend().native_number(device.index)}];
    if (const auto here = here_.find(device.space); here != here_.end()) {
      for (const std::uint32_t q : here->second) {
        const std::int64_t offset =
            contiguous_offset(to_block_, box, from_block_, regions_[q], itemsize_);
        if (offset < 0) continue;
        Block shared = from_.blocks()[q];
        shared.offset += offset;
        return first.buffer.get() == nullptr ? first = shared : shared;
      }
    }
    const std::int64_t bytes = checked_bytes(to_block_, itemsize_);
    Block fresh;
    fresh.buffer = device.space->allocate(bytes, MemorySpace::For::tasks);
    if (first.buffer.get() != nullptr) {
      copy(device, box_copy(to_block_, to_block_, to_block_, itemsize_), first, 0, fresh, 0, bytes);
      return fresh;
    }
    copy_pieces(device, box, fresh);
    return first = fresh;
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
    copy(device, box_copy(extent, from_block_, to_block_, itemsize_), from_.blocks()[q], src_at, to,
         dst_at, checked_bytes(extent, itemsize_));
  }

  // Copies a box between these offsets in two blocks.
  void copy(const LocalDevice& device, StridedCopy box, const Block& from, std::int64_t src_at,
            Block& to, std::int64_t dst_at, std::int64_t bytes) {
    box.src = static_cast<const std::byte*>(from.data()) + src_at;
    box.dst = static_cast<std::byte*>(to.data()) + dst_at;
    LaunchSpec spec;
    spec.stream = device.comm;
    spec.name = "copy";
    spec.bytes = bytes;
    spec.cost_ns = static_cast<std::int64_t>(static_cast<double>(bytes) / kCopyBytesPerNs);
    Buffer* reads[] = {from.buffer.get()};
    Buffer* writes[] = {to.buffer.get()};
    launch(spec, reads, writes,
           [box, ops = &device_ops(from_.mesh->backend())](int part, int parts, void* native) {
             ops->copy_box(box, part, parts, native);
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
  std::map<MemorySpace*, std::vector<std::uint32_t>> here_;  // the old blocks of each space
  std::map<std::pair<Key, MemorySpace*>, Block> made_;
  std::map<std::pair<Key, int>, Block>
      first_;  // the first block made of each box and hardware device
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
