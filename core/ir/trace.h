// Traces: who interprets an op. Each thread has one current trace; bind hands every op to it, ops
// on constants too
// ("omnistaging"). A trace that works on values of an outer one makes the outer trace current while
// it does, so nested transforms stack (JAX's "stackless" core; autodidax's Trace and Tracer).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ir/primitive.h"
#include "shmap/array.h"

namespace shmap {

struct Node;

class Trace {
 public:
  explicit Trace(const char* name);
  virtual ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Interprets one op. `in` may be consumed: an operand whose handle is the only one was donated.
  // `out` has one empty Array a result.
  virtual void process(const Primitive& primitive, std::span<Array> in, const Params& params,
                       std::span<Array> out, SourceLine source) = 0;
  // Evaluates a whole program, where the trace has a better way than equation by equation; false
  // where it has not, and then nothing was touched. `args` may be consumed.
  virtual bool evaluate(const Jaxpr&, std::vector<Array>& /*args*/, std::vector<Array>& /*out*/) {
    return false;
  }
  // The mesh axes in scope; null outside every shard_map.
  virtual const detail::AxisEnv* axis_env() const { return nullptr; }
  // True where values of this trace have no value yet (staging): reading one on the host is an
  // error.
  virtual bool staged() const { return false; }
  // Whether an operand of a collective that is invariant over some of its axes is cast
  // (pbroadcast); otherwise that is an error.
  virtual bool auto_pbroadcast() const { return true; }
  // Whether an operand of the wrong variance is an error at all (shard_map: check_vma).
  virtual bool checks_variance() const { return true; }
  // True where values of this trace wrap those of another one (JVP, batching): programs are handed
  // to it as equations, and not run here.
  virtual bool transforms() const { return false; }
  // Whether values of the trace of that number are values of this one too.
  virtual bool reads(std::uint64_t /*trace*/) const { return false; }
  // x cast to vary over these axes too (pbroadcast); one that knows its casts makes each once.
  virtual Array vary(const Array& x, const AxisSet& axes, SourceLine source);

  std::uint64_t id() const { return id_; }  // never 0, never reused
  const char* name() const { return name_; }

 private:
  std::uint64_t id_;
  const char* name_;
};

Trace& current_trace();
// The trace of ops outside every transform; set once by the runtime.
void set_base_trace(Trace* trace);
Trace& base_trace();
// Registers primitives and kernels, where that has not been done: what does not go through bind
// calls it first.
inline void ensure_started() { base_trace(); }
// Makes `trace` current on this thread for a scope, exceptions included. ValueError where traces
// are nested so deep that the thread's stack is used up (core/ir/nesting.h).
class TraceScope {
 public:
  explicit TraceScope(Trace& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  friend bool is_active(std::uint64_t);
  friend int trace_depth();
  Trace* trace_;
  const TraceScope* below_;
  int depth_;
};
// How many scopes are open on this thread.
int trace_depth();
// Whether the trace of that number is current on this thread, or works below the current one, or
// has its values read by one that does.
bool is_active(std::uint64_t trace);

// Casts a value to vary over more mesh axes (pbroadcast); set by the collectives' registration.
// `axes`: those over which it is to vary beside those it has.
using CastFn = Array (*)(const Array& x, AxisSet axes, SourceLine source);
void set_cast_to_varying(CastFn fn);
Array cast_to_varying(const Array& x, AxisSet axes, SourceLine source);
// The TypeError for operands of unlike variance where casts are the user's to write; nothing where
// they are alike. Host scalars are the same everywhere, and go with any.
void require_equal_variance(const Primitive& primitive, std::span<const Array> in,
                            SourceLine source);

// The TypeError for a value used where its trace is not active: names both.
[[noreturn]] void throw_escaped(const Node& value, const char* what, SourceLine source);

// Hands an op of one result to the current trace. Operands are taken by value: a temporary or
// moved-from one is donated.
Array bind(const Primitive& primitive, std::span<Array> in, const Params& params,
           SourceLine source);
Array bind(const Primitive& primitive, Array x, const Params& params, SourceLine source);
Array bind(const Primitive& primitive, Array a, Array b, const Params& params, SourceLine source);
// Any number of results.
std::vector<Array> bind_all(const Primitive& primitive, std::span<Array> in, const Params& params,
                            SourceLine source);

// A message's last line: "\n  at file:line", or nothing where the line is not known.
std::string at_line(SourceLine source);
// The same for a text that may have one already.
std::string at_line_once(const std::string& text, SourceLine source);
// While `e` is handled: throws it again, with the op that asked for the memory ("matmul") and the
// caller's line, where it has none yet. `what` may be empty.
[[noreturn]] void rethrow_at(const OutOfMemory& e, const char* what, SourceLine source);

}  // namespace shmap
