// What jit keeps of each function: the programs that were traced, and their plans.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/ir/node.h"
#include "core/runtime/plan.h"
#include "core/transforms/tracing/make_jaxpr.h"
#include "shmap/jit.h"

namespace shmap::detail {

// What a program depends on beside the types: where it is traced.
struct Scope {
  enum Kind : std::uint8_t { eager, body, staged } kind = eager;
  const AxisEnv* env = nullptr;
  const MeshImpl* mesh = nullptr;  // of a body that runs now
  bool check_variance = true, auto_pbroadcast = true;
  friend bool operator==(const Scope&, const Scope&) = default;
};
Scope scope_here();

// One argument, as far as programs depend on it.
struct Signature {
  ShapedArray type;
  const MeshImpl* mesh = nullptr;  // where it is placed; null for host scalars and traced values
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
  const MeshImpl* mesh = nullptr;  // to be split over; null: nobody says

  Traced traced;
  std::shared_ptr<const void> like;
  std::vector<ShapedArray> out_types;
  // What runs; null where the program is staged into another, or interpreted.
  std::unique_ptr<Plan> plan;
  std::vector<const Sharding*> in, out;
  bool committed = false;  // the results
};

// The programs of one function: at most SHMAP_JIT_CACHE of them, of which the one that was called
// the longest ago goes first. With its last call done, a plan that went has given its memory back.
// Any thread.
class JitCacheImpl {
 public:
  // Null where there is none; counts as a call.
  std::shared_ptr<Entry> find(const void* tag, const Scope& scope, const FlatTree& arguments);
  void insert(std::shared_ptr<Entry> entry);
  // Of the program that was called last, of those that have one.
  std::string plan_text() const;
  // Says on stderr why nothing was found.
  void explain(const FlatTree& arguments, const Scope& scope, SourceLine source) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;  // the latest called first
};

}  // namespace shmap::detail
