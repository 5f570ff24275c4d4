// Lowering: a program of global arrays, with their shardings, becomes what each device of one mesh
// does: a program of blocks, with its collectives written out. The rules are those of eager ops on
// sharded arrays (core/transforms/lowering/partition.h): jit applies them at trace time (GSPMD's
// idea, one op at a time). The result is what the body of a shard_map would be, so plans know
// nothing else.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/array/sharding.h"
#include "core/transforms/lowering/lower_log.h"
#include "core/transforms/lowering/reshard_blocks.h"
#include "core/transforms/tracing/make_jaxpr.h"

namespace shmap {

// A global value while its program is lowered: the block of each device, as a value of the program
// that is being built, and how it is split. A literal has no sharding.
struct LowerValue {
  Array block;
  const Sharding* sharding = nullptr;
  // The type of the global value.
  ShapedArray type;
};

// A program inside (a body, a branch) as a program of blocks, for arguments that are split so; and
// how its results are split then.
struct LoweredProgram {
  Traced traced;
  std::vector<const Sharding*> results;
};

// Those of one lowering: a loop or branch asks for the program that it holds until its results are
// split as they have to be, and so does each level of what is nested.
struct LowerMemo {
  struct Found {
    JaxprRef asked;  // kept alive, so that its address stays its own
    LoweredProgram lowered;
  };
  std::map<std::pair<const Jaxpr*, std::vector<const Sharding*>>, Found> programs;
  LowerLog* log = nullptr;  // who is told; null: nobody
};

// Builds the program of blocks. Its trace is current while it works.
class Lowering {
 public:
  explicit Lowering(const detail::MeshImpl* mesh, LowerLog* log = nullptr);

  const detail::MeshImpl* mesh() const { return mesh_; }
  JaxprTrace& trace() { return trace_; }

  // A program inside of what is lowered. What it captures are its first binders, and `consts`.
  LoweredProgram inner(const Jaxpr& jaxpr, const std::vector<const Sharding*>& arguments,
                       SourceLine source);
  // The same program with those results brought to other shardings; null, or none: as they come.
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
  // The block of x under another sharding. In the trace's scope.
  Array resharded_block(const LowerValue& x, const Sharding* target, SourceLine source);

  // Random numbers and constants that are the same on every device, and what is computed from them
  // element by element: how to make a part of them (lower_random.cpp).
  struct Remade {
    Array block;  // keeps the node, by which it is found
    const Primitive* primitive;
    std::shared_ptr<const Params> params;
    std::vector<LowerValue> in;
    ShapedArray type;
    SourceLine source;
    bool random;  // else a constant
    std::map<const Sharding*, Array> parts;
  };
  // Notes the equation where it is one of these.
  void note_random(const Primitive& primitive, std::span<const LowerValue> in, const Params& params,
                   const LowerValue& out, SourceLine source);
  // The part of a value that was noted; null where it was not. In the trace's scope.
  const Array* random_part(const Array& block, const Sharding* target);

  const detail::MeshImpl* mesh_;
  JaxprTrace trace_;
  std::shared_ptr<LowerMemo> memo_;
  std::unordered_map<const detail::NodeBase*, Remade> remade_;
};

// What a LowerFn is called with: it fills `out`, under the lowering's trace.
struct LowerCall {
  Lowering& lowering;
  const Params& params;
  std::span<const LowerValue> in;
  std::span<const ShapedArray> out_types;
  std::span<LowerValue> out;
  SourceLine source;
};

// Programs over several meshes are not lowered, but run op by op.
class OtherMesh : public ValueError {
 public:
  using ValueError::ValueError;
};
[[noreturn]] void throw_other_mesh(const detail::MeshImpl* wanted, const detail::MeshImpl* mesh,
                                   SourceLine source);

struct Lowered {
  const detail::MeshImpl* mesh;
  JaxprRef jaxpr;                         // of blocks: constants first, then the arguments
  std::vector<Array> consts;              // concrete, to be placed on the mesh
  std::vector<const Sharding*> const_in;  // so: as every use takes them, or replicated
  std::vector<const Sharding*> in, out;   // of the arguments, and of the results
};

// `shardings`: one for each argument, of `mesh`. log: told what is decided; may be null.
Lowered lower(const Jaxpr& jaxpr, std::span<const Array> consts, const detail::MeshImpl* mesh,
              std::span<const Sharding* const> shardings, LowerLog* log = nullptr);

}  // namespace shmap
