// Printing arrays: a concrete one as NumPy does; in a body, the block of every local device.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <ostream>

#include "core/array/print_array.h"
#include "core/array/sharding.h"
#include "core/debug/ascii_sharding.h"
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

// "(i, j,) = (0, 1,)", as JAX labels the blocks of its eager shard_map.
std::string position_text(const StoredNode& node, std::uint32_t local) {
  std::string names, values;
  const std::vector<std::int64_t> at = node.mesh->coordinates(local);
  for (std::size_t a = 0; a < at.size(); ++a) {
    names += (a ? " " : "") + node.mesh->env()->names[a] + ",";
    values += (a ? " " : "") + std::to_string(at[a]) + ",";
  }
  return "(" + names + ") = (" + values + ")";
}

bool is_block(const Node& node) { return node.kind == NodeKind::stored && node.trace != 0; }

std::string array_text(const Array& x) {
  const Node* node = node_of(x);
  if (!node) return "<empty Array>";
  if (node->kind == NodeKind::tracer) return "Traced<" + to_string(node->type) + ">";
  if (!is_block(*node)) {
    if (!x.is_fully_addressable()) {
      return "Array(type=" + to_string(node->type) + ", not fully addressable from this process)";
    }
    const std::vector<std::byte> bytes = copy_to_host(x, "print");
    return detail::format_array(bytes.data(), node->type.dtype(), node->type.dims());
  }
  const auto& blocks = static_cast<const StoredNode&>(*node);
  std::string s;
  for (std::uint32_t p = 0; p < blocks.count; ++p) {
    s += "On " + blocks.mesh->local(p).device.str() + " at mesh coordinates " +
         position_text(blocks, p) + ":\n" + block_text(blocks, p) + "\n";
  }
  return s;
}

}  // namespace

std::string to_string(const Array& x) { return array_text(x); }
std::ostream& operator<<(std::ostream& out, const Array& x) { return out << array_text(x); }

namespace debug {

namespace {

// The format with its holes filled; arrays print the block of local device `local`, where they are
// blocks.
std::string fill(std::string_view format, const std::vector<detail::PrintArgument>& arguments,
                 std::uint32_t local, SourceLine source) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const char after = i + 1 < format.size() ? format[i + 1] : '\0';
    if ((c == '{' && after == '{') || (c == '}' && after == '}')) {
      out += c;
      ++i;
    } else if (c == '{' && after == '}') {
      ++i;
      if (next < arguments.size()) {
        const detail::PrintArgument& a = arguments[next];
        const Node* node = node_of(a.array);
        out += !node             ? a.text
               : is_block(*node) ? block_text(static_cast<const StoredNode&>(*node), local)
                                 : array_text(a.array);
      }
      ++next;
    } else {
      out += c;
    }
  }
  if (next != arguments.size()) {
    throw ValueError("debug::print: the format \"" + std::string(format) + "\" has " +
                     std::to_string(next) + " {} and " + std::to_string(arguments.size()) +
                     " arguments were given" + at_line(source));
  }
  return out;
}

}  // namespace

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
  const StoredNode* varying = nullptr;
  for (const PrintArgument& a : arguments) {
    const Node* node = node_of(a.array);
    if (node && is_block(*node) && !node->type.axes().empty())
      varying = static_cast<const StoredNode*>(node);
  }
  if (!varying) return fill(format, arguments, 0, source) + "\n";
  std::string lines;
  for (std::uint32_t p = 0; p < varying->count; ++p) {
    if (!is_active_device(p)) continue;  // it did not come this way
    lines += position_text(*varying, p) + " " + fill(format, arguments, p, source) + "\n";
  }
  return lines;
}

void print(std::string_view text, const std::vector<PrintArgument>& arguments, SourceLine source) {
  const std::string lines = format(text, arguments, source);
  std::fwrite(lines.data(), 1, lines.size(), stdout);
  std::fflush(stdout);
}

}  // namespace detail

std::string draw_array_sharding(const Array& x) {
  std::vector<ShardBox> boxes;
  for (const Shard& s : x.addressable_shards()) {
    boxes.push_back({s.device.kind() == DeviceKind::cpu ? "CPU" : "GPU", s.device.id(), s.index});
  }
  return draw_sharding(x.shape(), boxes);
}

void visualize_array_sharding(const Array& x) {
  const std::string text = draw_array_sharding(x);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace debug
}  // namespace shmap
