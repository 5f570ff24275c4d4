// The rules of while, scan and cond, by which flow_primitives.cpp makes their records. The rules of
// derivatives are in derivatives.h.
#pragma once
#include <vector>

namespace shmap {

struct BatchCall;  // core/ir/rules.h
class Params;      // core/ir/params.h
struct LowerCall;  // core/compiler/lowering/lower.h
struct PruneCall;  // core/compiler/passes/dead_code.h
struct WidenCall;  // core/tracing/stage_in_body.h

// For operands that vary over more mesh axes (widen.cpp).
void widen_while(WidenCall& call);
void widen_scan(WidenCall& call);
void widen_cond(WidenCall& call);

// Without unused results, carries and operands (prune.cpp).
void prune_while(PruneCall& call);
void prune_scan(PruneCall& call);
void prune_cond(PruneCall& call);

// Which results depend on some of the operands (depends.cpp).
std::vector<bool> depends_while(const Params& params, const std::vector<bool>& of);
std::vector<bool> depends_scan(const Params& params, const std::vector<bool>& of);
std::vector<bool> depends_cond(const Params& params, const std::vector<bool>& of);

// Global arrays as blocks (lower.cpp).
void lower_while(LowerCall& call);
void lower_scan(LowerCall& call);
void lower_cond(LowerCall& call);

// With a batch dimension (batch.cpp).
void batch_while(BatchCall& call);
void batch_scan(BatchCall& call);
void batch_cond(BatchCall& call);

}  // namespace shmap
