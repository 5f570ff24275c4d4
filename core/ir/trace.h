// Traces: who interprets an op. Each thread has one current trace, and bind hands every op to it,
// ops on constants too ("omnistaging"). A trace that works on values of an outer one makes the
// outer trace current while it does, so nested transforms stack (JAX's "stackless" core;
// autodidax's Trace and Tracer).
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
  // name: of the transform, as its user calls it; the string lives for ever. made: the line of user
  // code that made the transformed function, or that called the transform; unknown for traces of
  // the library's own.
  explicit Trace(const char* name, SourceLine made = {});
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
  // Whether operands of unlike variance are cast (pbroadcast), and one of a collective that is
  // invariant over some of its axes; otherwise that is an error. What was asked for: casts() says
  // what goes here and now.
  virtual bool auto_pbroadcast() const { return true; }
  bool casts() const;
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
  SourceLine made() const { return made_; }

 private:
  std::uint64_t id_;
  const char* name_;
  SourceLine made_;
};

// While the library's own code works on values, on this thread; exceptions included: a rule of a
// transform, a function that is made of several primitives. Constants and indices that it makes
// vary as what they meet, also where its caller has turned casts off: operands are cast there.
class LibraryScope {
 public:
  LibraryScope() : before_(active_) { active_ = true; }
  ~LibraryScope() { active_ = before_; }
  LibraryScope(const LibraryScope&) = delete;
  LibraryScope& operator=(const LibraryScope&) = delete;
  static bool is_active() { return active_; }
  bool was_active() const { return before_; }  // around this one

 protected:
  explicit LibraryScope(bool active) : before_(active_) { active_ = active; }

 private:
  static constinit thread_local bool active_;
  bool before_;
};
// While a rule of the library calls code of the user's (the rule of a custom_jvp): casts are the
// user's to write, where they were turned off.
class UserCodeScope : LibraryScope {
 public:
  UserCodeScope() : LibraryScope(false) {}
};
inline bool Trace::casts() const { return LibraryScope::is_active() || auto_pbroadcast(); }

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
  friend std::string scope_text();
  friend const char* staging_transform();
  friend std::string captured_text(const Array&, std::size_t);
  Trace* trace_;
  const TraceScope* below_;
  int depth_;
};
// How many scopes are open on this thread.
int trace_depth();
// Whether the trace of that number is current on this thread, or works below the current one, or
// has its values read by one that does.
bool is_active(std::uint64_t trace);
// The transforms in whose functions this thread is, the innermost first, each as a line of a
// message:
// "\n  in the jit made at f.cpp:36". Empty outside of all transforms.
std::string scope_text();
// The name of the outermost transform that traces without values here ("jit"); null where there is
// none.
const char* staging_transform();

// In the body of a shard_map, for the text of errors about types: "\n  operand 1 of type f32[8] is
// a whole array …" where x, of rank 1 or more, was made outside of the body. Else "".
std::string captured_text(const Array& x, std::size_t operand);
std::string captured_text(std::span<const Array> operands);

// While it lives, this thread runs a function that has to be given all traced values that it works
// on as arguments: a function with rules of its own (custom_vjp), or one of the rules.
// throw_escaped says so. `what` lives for ever.
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

// Casts a value to vary over more mesh axes (pbroadcast); set by the collectives' registration.
// `axes`: those over which it is to vary beside those it has.
using CastFn = Array (*)(const Array& x, AxisSet axes, SourceLine source);
void set_cast_to_varying(CastFn fn);
Array cast_to_varying(const Array& x, AxisSet axes, SourceLine source);
// The TypeError of `what` for operands of unlike variance where casts are the user's to write;
// nothing where they are alike. Host scalars are the same everywhere, and go with any.
void require_equal_variance(const char* what, std::span<const Array* const> in, SourceLine source);
void require_equal_variance(const char* what, std::span<const Array> in, SourceLine source);
// A function of the user's that several primitives make up: its operands are held to vary alike as
// those of one op are, under its own name; and in its scope the library works.
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

// The TypeError for a value that is used where its trace is not current or not active: says where
// the value was made, and what to do instead.
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
