// Traces: a trace decides what happens to an operation. Each thread has one current trace, and bind
// hands every operation to it, operations on constants too ("omnistaging"). A trace that works on
// values of an outer trace makes the outer one current while it does so; nested transforms work
// through this (JAX's "stackless" core; autodidax's Trace and Tracer).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "core/ir/primitive.h"
#include "shmap/array.h"

namespace shmap {

struct Node;

class Trace {
 public:
  // name: the transform's public name, in static memory. made: the line of user code that made the
  // transformed function, or that called the transform; unknown for traces that the library makes
  // for itself.
  explicit Trace(const char* name, SourceLine made = {});
  virtual ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Interprets one operation. `in` may be consumed: an operand whose handle is the only one was
  // donated. `out` has one empty Array per result.
  virtual void process(const Primitive& primitive, std::span<Array> in, const Params& params,
                       std::span<Array> out, SourceLine source) = 0;
  // Evaluates a whole program, in traces that have another way to do so than equation by equation.
  // In other traces, returns false and changes nothing.
  virtual bool evaluate(const Jaxpr&, std::vector<Array>& /*args*/, std::vector<Array>& /*out*/) {
    return false;
  }
  // The mesh axes in scope; null outside every shard_map.
  virtual const detail::AxisEnv* axis_env() const { return nullptr; }
  // Whether values of this trace have no contents yet (staging): reading one on the host is an
  // error.
  virtual bool staged() const { return false; }
  // Whether casts (pbroadcast) are inserted where the operands of an operation differ in variance,
  // and where an operand of a collective is invariant over some of the collective's axes; otherwise
  // both cases are errors. This is the user's option (ShardMapOptions::auto_pbroadcast). casts()
  // says whether casts are inserted for the code that runs now: in a LibraryScope they always are.
  virtual bool auto_pbroadcast() const { return true; }
  bool casts() const;
  // Whether wrong variance of an operand is an error at all (ShardMapOptions::check_vma).
  virtual bool checks_variance() const { return true; }
  // Whether values of this trace wrap values of another one (JVP, batching). Programs are then
  // handed to this trace as equations, and not interpreted.
  virtual bool transforms() const { return false; }
  // Whether values of the trace with that id are values of this trace too.
  virtual bool reads(std::uint64_t /*trace*/) const { return false; }
  // x cast to vary over `axes` too (pbroadcast). A trace that remembers its casts makes each only
  // once.
  virtual Array vary(const Array& x, const AxisSet& axes, SourceLine source);

  std::uint64_t id() const { return id_; }  // never 0, never reused
  const char* name() const { return name_; }
  SourceLine made() const { return made_; }

 private:
  std::uint64_t id_;
  const char* name_;
  SourceLine made_;
};

// Alive while this thread runs code of the library that works on values: a rule of a transform, or
// a function made of several primitives. An exception ends the scope too. Constants and indices
// that such code makes are cast to the variance of the other operands, even where the user turned
// casts off.
class LibraryScope {
 public:
  LibraryScope() : before_(active_) { active_ = true; }
  ~LibraryScope() { active_ = before_; }
  LibraryScope(const LibraryScope&) = delete;
  LibraryScope& operator=(const LibraryScope&) = delete;
  static bool is_active() { return active_; }
  bool was_active() const { return before_; }  // whether an outer LibraryScope is alive

 protected:
  explicit LibraryScope(bool active) : before_(active_) { active_ = active; }

 private:
  static constinit thread_local bool active_;
  bool before_;
};
// Alive while a rule of the library calls the user's code (the rule of a custom_jvp): where the
// user turned casts off, the user's code must write its casts itself.
class UserCodeScope : LibraryScope {
 public:
  UserCodeScope() : LibraryScope(false) {}
};
inline bool Trace::casts() const { return LibraryScope::is_active() || auto_pbroadcast(); }

// The trace of this thread's innermost TraceScope; outside of all scopes base_trace(), whose errors
// it then has.
Trace& current_trace();
// The trace of operations outside every transform. The first call starts the library: it registers
// all primitives, kernels and passes, and throws Error where a backend lacks a kernel
// (check_kernels), where a check of check_at_start throws, or where no base trace was set. Any
// thread.
Trace& base_trace();
// Makes `trace` the base trace; called by the register function of the trace's room, before the
// library has started. `trace` must never be destroyed.
void set_base_trace(Trace& trace);
// For register functions: `check` is called when everything is registered, with the kinds of
// devices for which this build has a backend. A check that is given twice is called once.
using StartCheck = void (*)(std::span<const DeviceKind> kinds);
void check_at_start(StartCheck check);
// Starts the library (base_trace). Code that uses the library otherwise than through bind calls
// this function first.
inline void ensure_started() { base_trace(); }
// Makes `trace` current on this thread while the scope is alive. ValueError where traces are nested
// so deeply that the thread's stack is used up (core/ir/nesting.h).
class TraceScope {
 public:
  explicit TraceScope(Trace& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  friend bool is_active(std::uint64_t);
  friend int trace_depth();
  friend std::string scope_text();
  friend const char* staging_transform();
  friend std::string captured_text(const Array&, std::size_t);
  Trace* trace_;
  const TraceScope* below_;
  int depth_;
};
// How many TraceScopes are alive on this thread.
int trace_depth();
// Whether the trace with that id is current on this thread, or is below the current one, or is read
// by such a trace (Trace::reads).
bool is_active(std::uint64_t trace);
// The transforms in whose functions this thread is, innermost first, each as a line of a message:
// "\n  in the jit made at f.cpp:36". Empty outside of all transforms.
std::string scope_text();
// The name of the outermost staging transform of this thread ("jit"); null where there is none.
const char* staging_transform();

// For type errors in the body of a shard_map: "\n  operand 1 of type f32[8] is a whole array …"
// where x has rank 1 or more and was made outside of the body; otherwise "".
std::string captured_text(const Array& x, std::size_t operand);
std::string captured_text(std::span<const Array> operands);

// Alive while this thread runs a function that must get all traced values as arguments: a function
// with custom derivative rules (custom_vjp), or one of its rules. The error of throw_escaped names
// the function. `what` is in static memory.
class ClosedFunction {
 public:
  ClosedFunction(const char* what, SourceLine made);
  ~ClosedFunction();
  ClosedFunction(const ClosedFunction&) = delete;
  ClosedFunction& operator=(const ClosedFunction&) = delete;
  const char* what() const { return what_; }
  SourceLine made() const { return made_; }
  static bool is_running();

 private:
  const char* what_;
  SourceLine made_;
  const ClosedFunction* outer_;
};

// Casts a value to vary over more mesh axes (core/ir/pbroadcast.h). `axes`: the axes to add to the
// value's own.
Array cast_to_varying(const Array& x, AxisSet axes, SourceLine source);
// Throws a TypeError in the name of `what` if the operands vary over different mesh axes: for code
// in which the user must write the casts. Literals fit any variance.
void require_equal_variance(const char* what, std::span<const Array* const> in, SourceLine source);
void require_equal_variance(const char* what, std::span<const Array> in, SourceLine source);
// Alive in a public function that consists of several primitives. The constructor checks, as a
// single operation does, that the operands of the function vary over the same axes, and names the
// function in the error. The object is a LibraryScope for the function's code.
class FunctionScope {
 public:
  FunctionScope(const char* what, std::initializer_list<const Array*> in, SourceLine source)
      : FunctionScope(what, std::span<const Array* const>(in.begin(), in.size()), source) {}
  FunctionScope(const char* what, std::span<const Array* const> in, SourceLine source) {
    if (!scope_.was_active()) check(what, in, source);
  }
  FunctionScope(const char* what, std::span<const Array> in, SourceLine source);

 private:
  static void check(const char* what, std::span<const Array* const> in, SourceLine source);
  LibraryScope scope_;
};

// Throws the TypeError for a value that is used where its trace is not active: says where the value
// was made, and what to do instead.
[[noreturn]] void throw_escaped(const Node& value, const char* what, SourceLine source);

// Hands an operation with one result to the current trace. Operands are taken by value: a temporary
// or moved-from operand is donated. Throws what the primitive's type rule throws (TypeError,
// ValueError), with the caller's line, and OutOfMemory. Does not wait for the result in eager mode,
// unless SHMAP_CHECK_NANS is set or the primitive's rule reads a value (cond, while_loop); may wait
// for room where many tasks or many freed bytes are pending.
Array bind(const Primitive& primitive, std::span<Array> in, const Params& params,
           SourceLine source);
Array bind(const Primitive& primitive, Array x, const Params& params, SourceLine source);
Array bind(const Primitive& primitive, Array a, Array b, const Params& params, SourceLine source);
// Hands an operation with any number of results to the current trace.
std::vector<Array> bind_all(const Primitive& primitive, std::span<Array> in, const Params& params,
                            SourceLine source);

// The last line of a message: "\n  at file:line", or "" where the line is not known.
std::string at_line(SourceLine source);
// at_line(source), or "" where `text` has such a line already.
std::string at_line_once(const std::string& text, SourceLine source);
// To be called in the handler of `e`: rethrows it with the operation that asked for the memory
// ("matmul") and the caller's line, where `e` does not have these yet. `what` may be empty.
[[noreturn]] void rethrow_at(const OutOfMemory& e, const char* what, SourceLine source);

}  // namespace shmap
