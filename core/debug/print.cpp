// Prints arrays: a concrete array as NumPy prints it; in a body, the block of every local device.
#include <algorithm>
#include <ostream>

#include "core/array/print_array.h"
#include "core/array/sharding.h"
#include "core/compiler/lowering/automatic_axes.h"
#include "core/debug/ascii_sharding.h"
#include "core/debug/staged_print.h"
#include "core/device/device_kinds.h"
#include "core/ir/divergence.h"
#include "core/ir/trace.h"
#include "core/runtime/host_transfer.h"
#include "shmap/debug.h"

namespace shmap {

namespace {

std::string block_text(const StoredNode& node, std::uint32_t local, std::string_view prefix = {}) {
  const std::vector<std::byte> bytes = block_to_host(node, local);
  return detail::format_array(bytes.data(), node.type.dtype(), node.type.dims(), prefix);
}

bool is_block(const Node& node) { return node.kind == NodeKind::stored && node.trace != 0; }

// The text of an array with blocks in several processes: the blocks of this process.
std::string local_text(const StoredNode& node) {
  std::string s = "Array(type=" + to_string(node.type) + ", " +
                  to_string(NamedSharding(Mesh(node.mesh), node.sharding->spec())) +
                  "), of which this process has:";
  for (std::uint32_t p = 0; p < node.count; ++p) {
    std::string index;
    for (const Slice& slice : node.sharding->index(p, node.type.dims()))
      index += (index.empty() ? "" : ", ") + std::to_string(slice.start) + ":" +
               std::to_string(slice.stop);
    const std::vector<std::byte> bytes = block_to_host(node, p);
    s += "\nOn " + node.mesh->local(p).device.str() + ", [" + index + "]:\n" +
         detail::format_array(bytes.data(), node.type.dtype(),
                              node.sharding->block_shape(node.type.dims(), "print"));
  }
  if (node.count == 0) s += " nothing";
  return s + "\n(process_allgather(x) gives each process the whole)";
}

std::string array_text(const Array& given) {
  const Array x = whole_in_body(primal_of(given));
  const Node* node = node_of(x);
  if (!node) return "<empty Array>";
  if (node->kind == NodeKind::batched) return "Batched<" + to_string(node->type) + ">";
  if (node->kind == NodeKind::tracer) return "Traced<" + to_string(node->type) + ">";
  if (!is_block(*node)) {
    const auto& stored = static_cast<const StoredNode&>(*node);
    if (node->kind == NodeKind::stored && !stored.mesh->fully_addressable() &&
        (!stored.sharding->is_replicated() || stored.count == 0))
      return local_text(stored);
    const std::vector<std::byte> bytes = copy_to_host(x, "print");
    return detail::format_array(bytes.data(), node->type.dtype(), node->type.dims());
  }
  const auto& blocks = static_cast<const StoredNode&>(*node);
  std::string s;
  for (std::uint32_t p = 0; p < blocks.count; ++p) {
    s += "On " + blocks.mesh->local(p).device.str() + " at mesh coordinates " +
         debug::detail::position_text(*blocks.mesh, p) + ":\n" + block_text(blocks, p) + "\n";
  }
  return s;
}

}  // namespace

std::string to_string(const Array& x) { return array_text(x); }
std::ostream& operator<<(std::ostream& out, const Array& x) { return out << array_text(x); }

namespace debug {

namespace detail {

std::string text_of(bool value) { return value ? "True" : "False"; }
std::string text_of(long long value) { return std::to_string(value); }
std::string text_of(unsigned long long value) { return std::to_string(value); }
std::string text_of(double value) {
  return shmap::detail::format_array(&value, DType::f64, Shape());
}
std::string text_of(float value) {
  return shmap::detail::format_array(&value, DType::f32, Shape());
}

std::string format(std::string_view format, const std::vector<PrintArgument>& arguments,
                   SourceLine source) {
  check_holes(format, arguments, source);
  const std::vector<std::string> specs = hole_specs(format);
  const StoredNode* varying = nullptr;
  std::vector<Array> values;
  for (const PrintArgument& a : arguments) {
    const Array& value = values.emplace_back(whole_in_body(primal_of(a.array), source));
    const Node* node = node_of(value);
    if (node && is_block(*node) && !node->type.axes().empty())
      varying = static_cast<const StoredNode*>(node);
  }
  // Returns the line for local device `local`. Arrays in blocks print that device's block.
  const auto line = [&](std::uint32_t local) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const PrintArgument& a = arguments[i];
      const Node* node = node_of(values[i]);
      const bool by_spec = !specs[i].empty();
      if (!node) {
        texts.push_back(by_spec ? text_by_spec(specs[i], a.dtype, &a.bits) : a.text);
      } else if (is_block(*node)) {
        const auto& blocks = static_cast<const StoredNode&>(*node);
        texts.push_back(by_spec ? text_by_spec(specs[i], node->type.dtype(),
                                               block_to_host(blocks, local).data())
                                : block_text(blocks, local));
      } else if (by_spec && (node->kind == NodeKind::stored || node->kind == NodeKind::literal)) {
        const std::vector<std::byte> value = copy_to_host(values[i], "print", source);
        texts.push_back(text_by_spec(specs[i], node->type.dtype(), value.data()));
      } else {
        texts.push_back(array_text(a.array));
      }
    }
    return fill_holes(format, texts) + "\n";
  };
  if (!varying) return line(0);
  std::string lines;
  for (std::uint32_t p = 0; p < varying->count; ++p) {
    if (!is_active_device(p)) continue;  // the device took another branch
    lines += position_text(*varying->mesh, p) + " " + line(p);
  }
  return lines;
}

void print(std::string_view text, const std::vector<PrintArgument>& arguments, SourceLine source) {
  if (current_trace().staged()) return stage_print(text, arguments, source);
  if (current_trace().transforms()) {
    // A batched value prints a line for each example, which the rule of debug_print does.
    std::vector<PrintArgument> values = arguments;
    bool is_batched = false;
    for (PrintArgument& a : values) {
      if (!a.array.node()) continue;
      a.array = Array(primal_of(a.array));
      is_batched = is_batched || node_of(a.array)->kind == NodeKind::batched;
    }
    if (is_batched) return stage_print(text, values, source);
  }
  write_out(format(text, arguments, source));
}

}  // namespace detail

// Shows all devices of the mesh, including those of other processes.
std::string draw_array_sharding(const Array& x, SourceLine source) {
  const NamedSharding placed = x.sharding(source);
  const shmap::detail::MeshImpl& mesh = *placed.mesh().impl();
  const Sharding& sharding = *mesh.sharding(placed.spec());
  const Shape block = sharding.block_shape(x.shape(), "draw_array_sharding");
  std::vector<ShardBox> boxes;
  for (const Device& device : mesh.devices().values()) {
    const auto position = static_cast<std::int64_t>(boxes.size());
    std::vector<Slice> index;
    for (std::size_t d = 0; d < block.size(); ++d) {
      std::int64_t part = 0;  // the number of the device's block along the dim
      if (d < sharding.dims().size()) {
        for (int a : sharding.dims()[d])
          part = part * mesh.env()->sizes[static_cast<std::size_t>(a)] +
                 mesh.coordinate_at(position, a);
      }
      index.push_back({part * block[d], (part + 1) * block[d]});
    }
    boxes.push_back({row_of(device.kind()).drawn, device.id(), std::move(index)});
  }
  try {
    return draw_sharding(x.shape(), boxes);
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  }
}

void visualize_array_sharding(const Array& x, SourceLine source) {
  detail::write_out(draw_array_sharding(x, source));
}

}  // namespace debug
}  // namespace shmap
