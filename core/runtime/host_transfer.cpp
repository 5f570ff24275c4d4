#include "core/runtime/host_transfer.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <string>

#include "core/array/local_devices.h"
#include "core/array/sharding.h"
#include "core/base/counters.h"
#include "core/base/element_type.h"
#include "core/ir/trace.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/host_constant.h"
#include "core/runtime/launch.h"
#include "core/runtime/reshard.h"

namespace shmap {

namespace detail {
constinit std::atomic<Array (*)(const Array&)> read_by_gathering{nullptr};
}  // namespace detail

namespace {

// The end of a message: the origin of the value, the transform in progress, and the caller's line.
std::string place_text(const Node& node, SourceLine source) {
  return origin_text(node) + scope_text() + at_line(source);
}

[[noreturn]] void throw_no_value(const Node& node, const char* what, SourceLine source) {
  const char* staging = staging_transform();
  const std::string transform = staging ? staging : "a transform";
  throw TypeError(std::string(what) + ": an array of type " + to_string(node.type) +
                  " has no value yet, since the function is being traced by " + transform +
                  " and runs only afterwards: the host cannot read it. Use where, cond, "
                  "while_loop, fori_loop or scan instead of host control flow, or call the "
                  "function without " +
                  transform + place_text(node, source));
}

[[noreturn]] void throw_batched(const Node& node, const char* what, SourceLine source) {
  throw TypeError(std::string(what) + ": an array of type " + to_string(node.type) +
                  " under vmap has a value for each element of the batch, and the host cannot read "
                  "it as one value. Use where, cond, while_loop, fori_loop or scan instead of host "
                  "control flow" +
                  place_text(node, source));
}

void wait_for_block(const StoredNode& node, const Block& block) {
  Event def;
  {
    std::lock_guard lock(node.mesh->backend().submit_mutex());
    def = block.buffer->def();
  }
  if (def.record() == nullptr) return;
  count(Counter::syncs);
  def.wait();
}

// The node whose value the host may read; otherwise throws the error that says why not.
const Node& readable(const Array& given, const char* what, SourceLine source) {
  const Node& outer = checked_node(given, what, source);
  if (outer.kind == NodeKind::dual && !is_active(outer.trace)) throw_escaped(outer, what, source);
  const Array& x = primal_of(given);
  const Node& node = *node_of(x);
  if (in_task()) {
    throw Error(std::string(what) +
                ": an array may not be read inside a task on a worker thread; read it before" +
                at_line(source));
  }
  if (node.kind == NodeKind::literal) return node;
  if (node.trace != 0 && !is_active(node.trace)) throw_escaped(node, what, source);
  if (node.kind == NodeKind::batched) throw_batched(node, what, source);
  if (node.kind != NodeKind::stored) throw_no_value(node, what, source);
  if (!node.type.axes().empty()) {
    const Axes axes(node.type.axes().names());
    throw TypeError(std::string(what) + ": an array of type " + to_string(node.type) +
                    " may differ from device to device along mesh " +
                    (axes.size() == 1 ? "axis " : "axes ") + to_string(axes) +
                    ", and the host can read only a value that is the same on every device. Make "
                    "it the same with psum, pmax or all_gather_invariant over " +
                    to_string(axes) + ", or print it, which shows the value of each device" +
                    place_text(node, source));
  }
  return node;
}

// Whether this process lacks a part of the value: it has no device of the mesh, or not all blocks.
bool elsewhere(const StoredNode& node) {
  return !node.mesh->fully_addressable() && node.trace == 0 &&
         (node.count == 0 || !node.sharding->is_replicated());
}

std::vector<std::byte> gather_to_host(const StoredNode& node, const char* what, SourceLine source) {
  if (elsewhere(node)) {
    want_local_devices(*node.mesh, what, source);
    throw ValueError(std::string(what) + ": parts of an array of type " + to_string(node.type) +
                     " lie on devices of other processes: use process_allgather(x), or read "
                     "addressable_shards()" +
                     at_line(source));
  }
  if (!node.sharding || node.sharding->is_replicated()) return block_to_host(node, 0);
  const std::int64_t item = itemsize(node.type.dtype());
  std::vector<std::byte> out(
      static_cast<std::size_t>(checked_bytes(node.type.dims(), static_cast<int>(item))));
  const Shape block = node.sharding->block_shape(node.type.dims(), what);
  std::set<std::vector<std::int64_t>> done;
  for (std::uint32_t p = 0; p < node.count; ++p) {
    std::int64_t start[kMaxRank];
    node.sharding->block_start(p, block, start);
    // Only the first of several replicas is read: they are equal, unless an unchecked body is
    // wrong.
    if (!done.emplace(start, start + block.size()).second) continue;
    const std::vector<std::byte> part = block_to_host(node, p);
    // One row of the innermost dim at a time: extra host memory for a small block would not pay.
    const std::size_t rank = block.size();
    const std::int64_t row = rank ? block[rank - 1] : 1;
    const std::int64_t rows = row ? block.num_elements() / row : 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int64_t rest = r, at = rank ? start[rank - 1] : 0,
                   stride = rank ? node.type.dims()[rank - 1] : 1;
      for (std::size_t d = rank - (rank ? 1 : 0); d-- > 0;) {
        at += (start[d] + rest % block[d]) * stride;
        rest /= block[d];
        stride *= node.type.dims()[d];
      }
      std::memcpy(out.data() + at * item, part.data() + r * row * item,
                  static_cast<std::size_t>(row * item));
    }
  }
  return out;
}

}  // namespace

void wait_for(const StoredNode& node) {
  // Adjacent blocks are often in one buffer, or written by one launch: ask such buffers once.
  std::vector<Event> pending;
  {
    std::lock_guard lock(node.mesh->backend().submit_mutex());
    const Buffer* last = nullptr;
    for (const Block& b : node.blocks()) {
      if (b.buffer.get() == last) continue;
      last = b.buffer.get();
      const Event& def = last->def();
      if (def.record() == nullptr) continue;
      if (pending.empty() || pending.back().record() != def.record()) pending.push_back(def);
    }
  }
  std::exception_ptr error;
  for (const Event& def : pending) {
    count(Counter::syncs);
    try {
      def.wait();
    } catch (...) {  // no wait may remain when the caller gets the first error
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

Array array_from_host(const void* data, DType dtype, const Shape& shape) {
  ensure_started();
  const std::int64_t bytes = checked_bytes(shape, itemsize(dtype));
  const detail::MeshImpl* mesh = detail::MeshImpl::default_device();
  StoredNode* node = StoredNode::make(ShapedArray(shape, dtype, false, AxisSet()), mesh, 1);
  Array out = Array::of(node);
  node->sharding = mesh->replicated();
  Block& block = node->blocks()[0];
  block.buffer = mesh->local(0).space->allocate(bytes);
  write_constant(mesh->backend(), mesh->local(0), *block.buffer, data, bytes);
  return out;
}

std::vector<std::byte> block_to_host(const StoredNode& node, std::uint32_t local) {
  const Shape shape =
      node.sharding ? node.sharding->block_shape(node.type.dims(), "block") : node.type.dims();
  std::vector<std::byte> out(
      static_cast<std::size_t>(checked_bytes(shape, itemsize(node.type.dtype()))));
  const Block& block = node.blocks()[local];
  wait_for_block(node, block);
  if (!out.empty()) {
    device_ops(node.mesh->backend())
        .device_to_host(out.data(), block.data(), static_cast<std::int64_t>(out.size()));
  }
  return out;
}

std::vector<std::byte> copy_to_host(const Array& x, const char* what, SourceLine source) {
  const Node& node = readable(x, what, source);
  if (node.kind == NodeKind::literal) {
    const auto& literal = static_cast<const LiteralNode&>(node);
    return {literal.value, literal.value + itemsize(node.type.dtype())};
  }
  const auto& stored = static_cast<const StoredNode&>(node);
  if (elsewhere(stored)) {
    if (auto* gather = detail::read_by_gathering.load(std::memory_order_relaxed))
      return copy_to_host(gather(x), what, source);
  }
  return gather_to_host(stored, what, source);
}

namespace detail {

namespace {
void check_element(const Node& node, DType wanted, const char* what, SourceLine source) {
  if (node.type.dtype() == wanted) return;
  throw TypeError(std::string(what) + "<" + short_name(wanted) + ">: the array has type " +
                  to_string(node.type) + ", and its elements are read as " +
                  short_name(node.type.dtype()) + ": name that type, or convert with astype(x, " +
                  short_name(wanted) + ")" + at_line(source));
}
}  // namespace

void host_copy(const Array& x, DType wanted, void* out, std::int64_t n, SourceLine source) {
  check_element(checked_node(x, "to_vector", source), wanted, "to_vector", source);
  const std::vector<std::byte> bytes = copy_to_host(x, "to_vector", source);
  if (!bytes.empty())
    std::memcpy(out, bytes.data(), static_cast<std::size_t>(n * itemsize(wanted)));
}

void item_copy(const Array& x, DType wanted, void* out, SourceLine source) {
  const Node& node = checked_node(x, "item", source);
  if (node.type.size() != 1) {
    throw ValueError(
        "item: an array of type " + to_string(node.type) + " has " +
        std::to_string(node.type.size()) +
        " elements, and only an array of one element has a value: index it, or use to_vector" +
        origin_text(node) + at_line(source));
  }
  check_element(node, wanted, "item", source);
  const std::vector<std::byte> bytes = copy_to_host(x, "item", source);
  std::memcpy(out, bytes.data(), bytes.size());
}

}  // namespace detail

Array::operator bool() const {
  const char* what = "a host condition (if, while, &&, ||, !)";
  const Node& node = checked_node(*this, what);
  if (node.type.size() != 1) {
    throw ValueError(std::string(what) + ": an array of type " + to_string(node.type) + " has " +
                     std::to_string(node.type.size()) +
                     " elements, and only an array of one element is true or false: use any(x) or "
                     "all(x)" +
                     place_text(node, {}));
  }
  const std::vector<std::byte> bytes = copy_to_host(*this, what);
  const DType dtype = node.type.dtype();
  if (is_floating(dtype)) {  // -0 is false although a bit of it is set
    return with_float(dtype, [&]<class T>() {
      using Value = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
      T v;
      std::memcpy(static_cast<void*>(&v), bytes.data(), sizeof v);
      return static_cast<Value>(v) != 0;
    });
  }
  return std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; });
}

const Array& Array::block_until_ready(SourceLine source) const {
  checked_node(*this, "block_until_ready", source);
  detail::refuse_in_task("block_until_ready");
  const Node& node = *node_of(primal_of(*this));
  if (node.kind == NodeKind::stored) wait_for(static_cast<const StoredNode&>(node));
  return *this;
}

}  // namespace shmap
