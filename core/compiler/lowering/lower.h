// Lowering: turns a program of global arrays with shardings into a program of blocks for the
// devices of one mesh, with the collectives written out. It applies the rules of eager operations
// on sharded arrays (core/compiler/lowering/partition.h), one operation at a time; the idea is
// that of GSPMD. The result has the form of a shard_map body, so that plans need no other form.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/array/sharding.h"
#include "core/compiler/lowering/lower_log.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/tracing/make_jaxpr.h"

namespace shmap {

// A global value while its program is lowered: its block, as a value of the program that is being
// built, and its sharding. A literal has no sharding.
struct LowerValue {
  Array block;
  const Sharding* sharding = nullptr;
  // The type of the global value.
  ShapedArray type;
};

// A program inside of an equation (a body, a branch), lowered for given shardings of its arguments,
// and the shardings of its results.
struct LoweredProgram {
  Traced traced;
  std::vector<const Sharding*> results;
};

// The lowered programs of one lowering. A loop or branch lowers its program repeatedly, until the
// shardings of its results are settled, at each level of a nest.
struct LowerMemo {
  struct Found {
    JaxprRef asked;  // kept alive, so that no other program gets its address
    LoweredProgram lowered;
  };
  std::map<std::pair<const Jaxpr*, std::vector<const Sharding*>>, Found> programs;
  LowerLog* log = nullptr;  // receives the lowering's decisions; may be null
};

// Builds the program of blocks. Its trace is the current trace while it works.
class Lowering {
 public:
  explicit Lowering(const detail::MeshImpl* mesh, LowerLog* log = nullptr);

  const detail::MeshImpl* mesh() const { return mesh_; }
  JaxprTrace& trace() { return trace_; }

  // Lowers a program inside of an equation. Closed-over values are its first binders, and are in
  // `consts`.
  LoweredProgram inner(const Jaxpr& jaxpr, const std::vector<const Sharding*>& arguments,
                       SourceLine source);
  // The same program with its results brought to `targets`. A null target, or an empty list, leaves
  // the sharding as it is.
  LoweredProgram with_results(const Jaxpr& jaxpr, LoweredProgram lowered,
                              const std::vector<const Sharding*>& targets, SourceLine source);

  // A new argument of the program: a global array with this sharding. Literals have none.
  LowerValue argument(const ShapedArray& type, const Sharding* sharding);
  LowerValue literal(const Array& literal) const;
  // The value under another sharding (reshard_block). ValueError naming `what` where a dim is not
  // divisible.
  LowerValue reshard(const LowerValue& x, const Sharding* target, const std::string& what,
                     SourceLine source);
  // One equation of global values.
  std::vector<LowerValue> eqn(const Primitive& primitive, std::vector<LowerValue> in,
                              const Params& params, std::span<const ShapedArray> out,
                              SourceLine source);
  // All equations of a program of global values.
  std::vector<LowerValue> program(const Jaxpr& jaxpr, std::vector<LowerValue> args);

 private:
  Lowering(const detail::MeshImpl* mesh, std::shared_ptr<LowerMemo> memo);
  // The block of x under another sharding. Needs the lowering's trace as the current trace.
  Array resharded_block(const LowerValue& x, const Sharding* target, SourceLine source);

  // An equation that makes random numbers or a constant, the same on every device, or an
  // elementwise equation on such values: what is needed to compute only a part of its result
  // (lower_random.cpp).
  struct Remade {
    Array block;  // keeps the node alive, whose address is the key
    const Primitive* primitive;
    std::shared_ptr<const Params> params;
    std::vector<LowerValue> in;
    ShapedArray type;
    SourceLine source;
    bool random;  // random numbers; otherwise a constant
    std::map<const Sharding*, Array> parts;
  };
  // Records the equation if it is one that Remade describes.
  void note_random(const Primitive& primitive, std::span<const LowerValue> in, const Params& params,
                   const LowerValue& out, SourceLine source);
  // The part of a recorded value; null where the value was not recorded. Needs the lowering's trace
  // as the current trace.
  const Array* random_part(const Array& block, const Sharding* target);
  // The part of one recorded value, from its operands' parts, which are made.
  Array make_part(Remade& x, const Sharding* target);

  const detail::MeshImpl* mesh_;
  JaxprTrace trace_;
  std::shared_ptr<LowerMemo> memo_;
  std::unordered_map<const detail::NodeBase*, Remade> remade_;
};

// The argument of a LowerFn, which fills `out` under the lowering's trace.
struct LowerCall {
  Lowering& lowering;
  const Params& params;
  std::span<const LowerValue> in;
  std::span<const ShapedArray> out_types;
  std::span<LowerValue> out;
  SourceLine source;
};

// Thrown for a program over several meshes, which is not lowered but runs operation by operation.
class OtherMesh : public ValueError {
 public:
  using ValueError::ValueError;
};
[[noreturn]] void throw_other_mesh(const detail::MeshImpl* wanted, const detail::MeshImpl* mesh,
                                   SourceLine source);

struct Lowered {
  const detail::MeshImpl* mesh;
  JaxprRef jaxpr;             // of blocks: constants first, then the arguments
  std::vector<Array> consts;  // concrete, to be placed on the mesh
  // of the constants: the sharding in which every use takes it, or replicated
  std::vector<const Sharding*> const_in;
  std::vector<const Sharding*> in, out;  // of the arguments, and of the results
};

// `shardings`: one for each argument, over `mesh`. log: receives the lowering's decisions; may be
// null.
Lowered lower(const Jaxpr& jaxpr, std::span<const Array> consts, const detail::MeshImpl* mesh,
              std::span<const Sharding* const> shardings, LowerLog* log = nullptr);

}  // namespace shmap
