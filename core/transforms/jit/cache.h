// jit's cache of one function: its traced programs and their plans.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/base/spin_lock.h"
#include "core/ir/node.h"
#include "core/runtime/plan.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/jit.h"

namespace shmap::detail {

// Where a program is traced; programs depend on it besides the arguments' types.
struct Scope {
  enum Kind : std::uint8_t { eager, body, staged } kind = eager;
  const AxisEnv* env = nullptr;
  const MeshImpl* mesh = nullptr;  // of a body that runs eagerly
  bool check_variance = true, auto_pbroadcast = true;
  friend bool operator==(const Scope&, const Scope&) = default;
};
Scope scope_here();

// The properties of an argument on which programs depend.
struct Signature {
  ShapedArray type;
  const MeshImpl* mesh = nullptr;  // of a concrete array; null for host scalars and traced values
  const Sharding* sharding = nullptr;
  bool committed = false;

  bool matches(const Node& node) const;
};
Signature signature_of(const Node& node);

struct Entry {
  const void* tag;
  Scope scope;
  std::string key;
  std::vector<Signature> arguments;
  const MeshImpl* mesh = nullptr;  // to split the program over; null where no mesh was given

  Traced traced;
  std::shared_ptr<const void> like;  // the structure of the result (shmap/jit.h)
  std::vector<ShapedArray> out_types;
  // Null where the program is staged into another program, or interpreted.
  std::unique_ptr<Plan> plan;
  // The shardings of arguments and results that the plan has: of global arrays, or of values of a
  // body with automatic axes. Empty in other bodies.
  std::vector<const Sharding*> in, out;
  bool committed = false;  // whether the results are committed
};

// An entry without a program, for calls with such arguments.
std::shared_ptr<Entry> make_entry(const void* tag, const Scope& scope, const MeshImpl* mesh,
                                  const FlatTree& arguments);

// The programs of one function: at most SHMAP_JIT_CACHE of them; the program whose last call is the
// oldest is removed first. A plan frees its memory when it has been removed and its last call has
// ended. Thread-safe.
class JitCacheImpl {
 public:
  // Null where there is no such program. Counts as a call.
  std::shared_ptr<Entry> find(const void* tag, const Scope& scope, const FlatTree& arguments);
  void insert(std::shared_ptr<Entry> entry);
  // The plan of the program that was called last among those that have a plan.
  std::string plan_text() const;
  // Writes to stderr why find() found no program.
  void explain(const FlatTree& arguments, const Scope& scope, SourceLine source) const;

 private:
  std::vector<std::shared_ptr<Entry>> entries() const;

  mutable SpinLock lock_;
  std::vector<std::shared_ptr<Entry>> entries_;  // sorted by last call, latest first
};

}  // namespace shmap::detail
