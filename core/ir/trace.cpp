#include "core/ir/trace.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

#include "core/base/inline_vector.h"
#include "core/base/no_user_code.h"
#include "core/device/registry.h"
#include "core/ir/nesting.h"
#include "core/ir/node.h"

namespace shmap {

namespace {
std::atomic<std::uint64_t> next_trace_number{1};
// An id consists of a number and, in its lowest bits, an index into trace_names, so that the name
// of a value's trace is known after the trace is gone.
constexpr int kNameBits = 6;
std::atomic<const char*> trace_names[1 << kNameBits];

std::uint64_t name_slot(const char* name) {
  std::uint64_t slot = 0;
  for (; slot + 1 < std::size(trace_names); ++slot) {
    const char* there = trace_names[slot].load(std::memory_order_acquire);
    if (there == nullptr && trace_names[slot].compare_exchange_strong(there, name)) break;
    if (there == name || std::strcmp(there, name) == 0) break;
  }
  return slot;  // the last one has no name
}

std::string name_of_trace(std::uint64_t id) {
  const char* name = trace_names[id & ((1 << kNameBits) - 1)].load(std::memory_order_acquire);
  return name ? name : "a transform";
}

// Whether the transform calls its function at once; other transforms return a function that is
// called later.
bool is_called_at_once(const char* name) {
  for (const char* called : {"cond", "switch_", "scan", "fori_loop", "while_loop", "jvp", "vjp",
                             "linearize", "linear_transpose"}) {
    if (std::strcmp(name, called) == 0) return true;
  }
  return false;
}
Trace* registered_base = nullptr;   // by the thread that starts the library
std::atomic<Trace*> base{nullptr};  // null until everything is registered
thread_local Trace* current = nullptr;
thread_local const TraceScope* innermost = nullptr;
thread_local const ClosedFunction* closed_function = nullptr;
}  // namespace

Trace::Trace(const char* name, SourceLine made)
    : id_(next_trace_number.fetch_add(1, std::memory_order_relaxed) << kNameBits | name_slot(name)),
      name_(name),
      made_(made) {}
Trace::~Trace() = default;

constinit thread_local bool LibraryScope::active_ = false;

Array Trace::vary(const Array& x, const AxisSet& axes, SourceLine source) {
  const AxisSet missing = axes - node_of(x)->type.axes();
  if (missing.empty()) return x;
  TraceScope scope(*this);
  return cast_to_varying(x, missing, source);
}

namespace detail {
void register_all();  // generated: calls every register_<family>()
}  // namespace detail

namespace {
std::vector<StartCheck>& start_checks() {  // used by the thread that starts the library
  static std::vector<StartCheck> checks;
  return checks;
}

Trace& start() {
  static std::once_flag once;
  std::call_once(once, [] {
    detail::register_all();
    std::vector<DeviceKind> kinds;
    for (const BackendFactory& backend : built_in_backends()) kinds.push_back(backend.kind);
    check_kernels(kinds);
    for (const StartCheck check : start_checks()) check(kinds);
    if (registered_base == nullptr)
      throw Error("no register function has set the base trace (set_base_trace)");
    base.store(registered_base, std::memory_order_release);
  });
  return *base.load(std::memory_order_acquire);
}
}  // namespace

Trace& base_trace() {
  Trace* t = base.load(std::memory_order_acquire);
  return t ? *t : start();
}

Trace& current_trace() { return current ? *current : base_trace(); }

void set_base_trace(Trace& trace) { registered_base = &trace; }

void check_at_start(StartCheck check) {
  std::vector<StartCheck>& checks = start_checks();
  if (std::find(checks.begin(), checks.end(), check) == checks.end()) checks.push_back(check);
}

TraceScope::TraceScope(Trace& trace)
    : trace_(&trace), below_(innermost), depth_(below_ ? below_->depth_ + 1 : 1) {
  check_nesting(trace.name());
  innermost = this;
  current = trace_;
  NoUserCode::begin();
}
TraceScope::~TraceScope() {
  NoUserCode::end();
  innermost = below_;
  current = below_ ? below_->trace_ : nullptr;
}

bool is_active(std::uint64_t trace) {
  for (const TraceScope* s = innermost; s; s = s->below_)
    if (s->trace_->id() == trace || s->trace_->reads(trace)) return true;
  return false;
}

int trace_depth() { return innermost ? innermost->depth_ : 0; }

std::string scope_text() {
  std::string text;
  std::vector<std::string> lines;
  for (const TraceScope* s = innermost; s; s = s->below_) {
    const Trace& trace = *s->trace_;
    if (trace.made().file == nullptr) continue;
    std::string line = std::string("\n  in the ") + trace.name() +
                       (is_called_at_once(trace.name()) ? " called at " : " made at ") +
                       trace.made().str();
    // A trace that works for an outer one has two scopes, and so have transforms that consist of
    // two traces: their line is printed once.
    if (std::find(lines.begin(), lines.end(), line) != lines.end()) continue;
    text += line;
    lines.push_back(std::move(line));
  }
  return text;
}

const char* staging_transform() {
  const char* name = nullptr;
  for (const TraceScope* s = innermost; s; s = s->below_)
    if (s->trace_->staged() && s->trace_->made().file != nullptr) name = s->trace_->name();
  return name;
}

std::string captured_text(const Array& x, std::size_t operand) {
  const Trace* body = nullptr;
  for (const TraceScope* s = innermost; s && !body; s = s->below_)
    if (std::strcmp(s->trace_->name(), "shard_map") == 0) body = s->trace_;
  const Node* node = node_of(x);
  if (!body || !node || node->kind == NodeKind::literal || node->type.rank() == 0)
    return std::string();
  // Look at the innermost value: dual and batched values of a body may have the id of a trace
  // around the body.
  while (node->kind == NodeKind::dual || node->kind == NodeKind::batched) {
    node = node_of(node->kind == NodeKind::dual ? static_cast<const DualNode*>(node)->primal
                                                : static_cast<const BatchedNode*>(node)->values);
  }
  // Ids increase: a value made before the body has a lower id than the body's trace, or 0.
  const bool is_older = node->trace >> kNameBits < body->id() >> kNameBits;
  if (!is_older && origin_of(*node).op != kCaptured) return std::string();
  return "\n  operand " + std::to_string(operand) + " of type " + to_string(node_of(x)->type) +
         " was made outside of the shard_map body, which closes over it (captures it): in the body "
         "it is the whole array, as an argument with the spec P(), and no device's block. Where a "
         "block is meant, pass it to the function as an argument with a spec";
}

std::string captured_text(std::span<const Array> operands) {
  std::string text;
  for (std::size_t i = 0; i < operands.size(); ++i) text += captured_text(operands[i], i);
  return text;
}

ClosedFunction::ClosedFunction(const char* what, SourceLine made)
    : what_(what), made_(made), outer_(std::exchange(closed_function, this)) {}
ClosedFunction::~ClosedFunction() { closed_function = outer_; }
bool ClosedFunction::is_running() { return closed_function != nullptr; }

void require_equal_variance(const char* what, std::span<const Array* const> in, SourceLine source) {
  AxisSet all;
  bool alike = true;
  const Node* first = nullptr;
  for (const Array* x : in) {
    const Node* node = node_of(*x);
    if (!node || node->kind == NodeKind::literal) continue;
    if (!first) first = node;
    alike = alike && node->type.axes() == first->type.axes();
    all = all | node->type.axes();
  }
  if (alike) return;
  std::string types, remedy;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Node* node = node_of(*in[i]);
    if (!node) continue;
    types += (types.empty() ? "" : ", ") + to_string(node->type);
    const AxisSet missing = all - node->type.axes();
    if (missing.empty() || node->kind == NodeKind::literal) continue;
    remedy += std::string(remedy.empty() ? "cast" : " and") + " operand " + std::to_string(i) +
              " with pbroadcast(x, " + to_string(Axes(missing.names())) + ")";
  }
  throw TypeError(std::string(what) + ": operands of types " + types +
                  " differ in the mesh axes over which they vary, which requires varying axes to "
                  "match since auto_pbroadcast is off: " +
                  remedy + ", or turn auto_pbroadcast on" + at_line(source));
}

void require_equal_variance(const char* what, std::span<const Array> in, SourceLine source) {
  InlineVector<const Array*, 8> operands(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) operands[i] = &in[i];
  require_equal_variance(what, operands.span(), source);
}

FunctionScope::FunctionScope(const char* what, std::span<const Array> in, SourceLine source) {
  if (scope_.was_active()) return;
  InlineVector<const Array*, 8> operands(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) operands[i] = &in[i];
  check(what, operands.span(), source);
}

void FunctionScope::check(const char* what, std::span<const Array* const> in, SourceLine source) {
  const Trace& trace = current_trace();
  if (trace.auto_pbroadcast() || !trace.checks_variance() || !trace.axis_env()) return;
  require_equal_variance(what, in, source);
}

std::string at_line(SourceLine source) {
  return source.file ? "\n  at " + source.str() : std::string();
}

std::string at_line_once(const std::string& text, SourceLine source) {
  return text.find("\n  at ") == std::string::npos ? at_line(source) : std::string();
}

void throw_escaped(const Node& value, const char* what, SourceLine source) {
  if (value.trace == TypeNode::kTrace) {
    throw TypeError(std::string(what) + " was given a ShapedArray (" + to_string(value.type) +
                    "), which stands for an argument in make_jaxpr only: pass an array here" +
                    at_line(source));
  }
  const std::string given =
      std::string(what) + " was given an array of type " + to_string(value.type);
  const std::string name = name_of_trace(value.trace);
  if (const ClosedFunction* f = closed_function; f && value.trace != current_trace().id()) {
    throw TypeError(given + " that " + name + " works on, and that " + f->what() +
                    " closes over (captures): the function and its rules may use such a value only "
                    "as an argument. Pass it to the function as one more argument; its rules get "
                    "it then too." +
                    origin_text(value) + "\n  in the " + f->what() + " made at " + f->made().str() +
                    at_line(source));
  }
  if (is_active(value.trace)) {
    throw TypeError(given + " that " + name +
                    " works on here, and it takes only arrays that have a value of their own: call "
                    "it outside of the function that is transformed, before or after" +
                    origin_text(value) + scope_text() + at_line(source));
  }
  const std::string here = current_trace().name();
  throw TypeError(given + " that was made inside a function under " + name +
                  ", and that is used outside of this function now, in " +
                  (here == "eager" ? "eager code" : "a function under " + here) +
                  " (after its end, in another function, or on another thread): such a value is "
                  "gone when the function ends. "
                  "Return it from the function instead of storing it, or pass it as an argument." +
                  origin_text(value) + at_line(source));
}

namespace {

void process(const Primitive& primitive, std::span<Array> in, const Params& params,
             std::span<Array> out, SourceLine source) {
  try {
    current_trace().process(primitive, in, params, out, source);
  } catch (const OutOfMemory& e) {
    rethrow_at(e, primitive.name, source);
  }
}

}  // namespace

void rethrow_at(const OutOfMemory& e, const char* what, SourceLine source) {
  std::string text = e.what();
  if (*what != 0 && text.find("\n  in ") == std::string::npos)
    text += "\n  in " + std::string(what);
  throw OutOfMemory(text + at_line_once(text, source));
}

Array bind(const Primitive& primitive, std::span<Array> in, const Params& params,
           SourceLine source) {
  Array out;
  process(primitive, in, params, std::span<Array>(&out, 1), source);
  return out;
}

Array bind(const Primitive& primitive, Array x, const Params& params, SourceLine source) {
  Array out;
  process(primitive, std::span<Array>(&x, 1), params, std::span<Array>(&out, 1), source);
  return out;
}

Array bind(const Primitive& primitive, Array a, Array b, const Params& params, SourceLine source) {
  Array in[2] = {std::move(a), std::move(b)};
  Array out;
  process(primitive, in, params, std::span<Array>(&out, 1), source);
  return out;
}

std::vector<Array> bind_all(const Primitive& primitive, std::span<Array> in, const Params& params,
                            SourceLine source) {
  std::vector<ShapedArray> types;
  for (const Array& x : in) types.push_back(checked_node(x, primitive.name, source).type);
  std::vector<Array> out(static_cast<std::size_t>(result_count(primitive, types, params)));
  process(primitive, in, params, out, source);
  return out;
}

}  // namespace shmap
