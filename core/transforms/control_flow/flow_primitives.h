// The primitives of control flow: while, scan and cond, with programs inside.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ir/jaxpr.h"
#include "core/ir/params.h"
#include "core/ir/primitive.h"

namespace shmap {

// Operands: constants of the condition, constants of the body, the carry. Results: the carry.
// cond_jaxpr: (constants, carry) -> (bool[]); body_jaxpr: (constants, carry) -> carry.
extern Primitive while_p;
struct WhileParams : ParamsOf<WhileParams> {
  JaxprRef cond_jaxpr, body_jaxpr;
  int cond_nconsts = 0, body_nconsts = 0;
  void visit(ParamVisitor& v) const override;
};

// Operands: constants, the carry, xs. Results: the carry, ys. jaxpr: (constants, carry, one x of
// each of xs) -> (carry, one y of each of ys). A fori_loop with static bounds is a scan.
extern Primitive scan_p;
struct ScanLoopParams : ParamsOf<ScanLoopParams> {
  JaxprRef jaxpr;
  std::int64_t length = 0;
  bool reverse = false;
  int num_consts = 0, num_carry = 0;
  void visit(ParamVisitor& v) const override;
};

// Operands: the index, then the operands of the branches, which all branches take. A bool index
// selects from the branches (false, true); an integer index is clamped to the branches.
extern Primitive cond_p;
struct CondParams : ParamsOf<CondParams> {
  std::vector<JaxprRef> branches;
  void visit(ParamVisitor& v) const override;
};

// A number of leaves, which parameters keep as an int, as an index.
inline std::size_t count(int n) { return static_cast<std::size_t>(n); }

}  // namespace shmap
