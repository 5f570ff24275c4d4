#include "core/runtime/same_values.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/array/sharding.h"
#include "core/base/hash_bytes.h"
#include "core/base/hash_text.h"
#include "core/device/backend.h"
#include "core/ir/divergence.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/processes/exchanges.h"
#include "core/processes/processes.h"
#include "core/processes/same_value.h"
#include "core/runtime/host_transfer.h"

namespace shmap {
namespace {

using Role = SameValue::Role;

// Captured values of at most this many bytes are part of a program's mark, on every thread: to read
// one takes microseconds.
constexpr std::int64_t kMostMarkedBytes = 64 << 10;

// Whether this process and others have devices of the mesh.
bool is_shared(const detail::MeshImpl& mesh) {
  return !mesh.fully_addressable() && mesh.local_count() != 0;
}

// Whether a call of this thread is one that all processes make in the same order.
bool is_in_order() {
  static thread_local const bool main_thread = getpid() == gettid();
  return main_thread && !capturing() && divergence() == nullptr && Processes::joined() != nullptr;
}

bool is_compared(const detail::MeshImpl& mesh) {
  if (!is_shared(mesh)) [[likely]]
    return false;
  return is_in_order();
}

std::uint64_t key_of(Role role, std::string_view name, SourceLine source) {
  return HashText()
      .add(static_cast<std::uint64_t>(role))
      .add(name)
      .add(std::string_view(source.file != nullptr ? source.file : ""))
      .add(static_cast<std::uint64_t>(source.line))
      .value();
}

// Whether this is one host's data: a scalar, or an array on one device.
bool is_host_data(const Array& x) {
  const Node* node = node_of(x);
  if (node == nullptr || node->trace != 0) return false;
  if (node->kind == NodeKind::literal) return true;
  return node->kind == NodeKind::stored &&
         static_cast<const StoredNode*>(node)->mesh->is_single() &&
         static_cast<const StoredNode*>(node)->count == 1;
}

// Waits for a stored value.
std::uint64_t hash_of(const Array& x) {
  const Node& node = *node_of(x);
  HashText hash;
  hash.add(to_string(node.type));
  if (node.kind == NodeKind::literal) {
    const auto& literal = static_cast<const LiteralNode&>(node);
    const auto bytes = static_cast<std::size_t>(itemsize(node.type.dtype()));
    return hash.add(hash_bytes(literal.value, bytes)).value();
  }
  const auto& stored = static_cast<const StoredNode&>(node);
  if (!stored.mesh->backend().host_addressable()) {
    const std::vector<std::byte> bytes = block_to_host(stored, 0);
    return hash.add(hash_bytes(bytes.data(), bytes.size())).value();
  }
  const Block& block = stored.blocks().front();
  wait_for(stored);
  return hash.add(hash_bytes(block.data(), static_cast<std::size_t>(node.type.nbytes()))).value();
}

void report(const detail::MeshImpl& mesh, SameValue value) {
  value.space = mesh.name();
  Processes::joined()->exchanges().report_value(value, mesh.processes());
}

std::string at(SourceLine source) {
  const std::string line = source.str();
  return line.empty() ? "" : " at " + line;
}

// name: "args[0] of shard_map"
void report_argument(const detail::MeshImpl& mesh, const Array& x, const std::string& name,
                     SourceLine source) {
  report(mesh, {Role::argument, 0, key_of(Role::argument, name, source), hash_of(x), 0,
                name + at(source) + ", of type " + to_string(node_of(x)->type) + ","});
}

}  // namespace

ProgramMark compare_program(const detail::MeshImpl& mesh, const Jaxpr& jaxpr,
                            std::span<const Array> consts, SourceLine source) {
  if (!is_shared(mesh)) return {};
  ProgramMark mark = make_program_mark(mesh, jaxpr);
  const bool compared = is_in_order();
  const bool marked = mesh.backend().host_addressable() && !capturing();
  const std::string function = compared ? " of the function under jit" + at(source) : "";
  if (compared) {
    report(mesh, {Role::program, 0, key_of(Role::program, "", source), mark.program, mark.equations,
                  "the program" + function});
  }
  HashText values;
  for (std::size_t i = 0; i < consts.size() && i < jaxpr.binders.size(); ++i) {
    const ShapedArray& type = jaxpr.binders[i]->type;
    const StoredNode* node = stored_of(consts[i]);
    if (node == nullptr || type.axes().mask_in(*mesh.env()) != 0) continue;
    const bool in_mark = marked && type.nbytes() <= kMostMarkedBytes;
    // What was computed in a body is no capture from outside.
    const bool reported = compared && node->trace == 0;
    if (!in_mark && !reported) continue;
    const std::uint64_t hash = hash_of(consts[i]);
    if (in_mark) values.add(hash);
    if (!reported) continue;
    const std::string name = "captured array " + std::to_string(i);
    report(mesh, {Role::captured, 0, key_of(Role::captured, name, source), hash, 0,
                  name + function + ", of type " + to_string(type) + ","});
  }
  mark.constants = values.value();
  return mark;
}

void compare_arguments(const detail::MeshImpl& mesh, std::span<const Array> arguments,
                       std::span<const Sharding* const> in, SourceLine source) {
  if (!is_compared(mesh)) return;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_host_data(arguments[i]) || (i < in.size() && !in[i]->is_replicated())) continue;
    report_argument(mesh, arguments[i], "args[" + std::to_string(i) + "] of the function under jit",
                    source);
  }
}

void compare_entering(const Array& x, const Sharding& target, const std::string& name,
                      SourceLine source) {
  const detail::MeshImpl& mesh = *target.mesh();
  if (!is_compared(mesh) || !target.is_replicated() || !is_host_data(x)) return;
  static std::unordered_set<std::uint64_t> known;  // the main thread's alone
  if (known.insert(key_of(Role::argument, name, source) ^ mesh.name()).second)
    report_argument(mesh, x, name, source);
}

void compare_placed(const Array& x, const Sharding& target, SourceLine source) {
  const detail::MeshImpl& mesh = *target.mesh();
  if (!is_compared(mesh) || !target.is_replicated() || !is_host_data(x)) return;
  report(mesh, {Role::put, 0, key_of(Role::put, "", source), hash_of(x), 0,
                "what device_put is given" + at(source) + ", of type " +
                    to_string(node_of(x)->type) + ","});
}

}  // namespace shmap
