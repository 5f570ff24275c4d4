// Derivatives and batching of overlapped products, which are linear in each operand. The transpose
// of a gather is a scatter, and an exchange is its own transpose in the other direction; the
// operand that is not moved is multiplied with the moved one in the transpose too.
#include "core/ops/rules.h"
#include "core/ops/batch_rules.h"
#include "core/ops/promote.h"
#include "core/ops/rule_ops.h"
#include "overlap/overlap.h"

namespace shmap {

namespace {

const OverlapSpec& spec_of(const Params& params) { return params_as<OverlapParams>(params).spec; }

}  // namespace

void jvp_overlapped(JvpCall& call) {
  const OverlapSpec& spec = spec_of(call.params);
  call.run();
  Array tangent;
  for (int i = 0; i < 2; ++i) {
    const Array& along = call.tangents[static_cast<std::size_t>(i)];
    if (!along.node()) continue;
    const Array part = run_overlapped(spec, i == 0 ? along : call.primals[0],
                                      i == 0 ? call.primals[1] : along, call.source);
    tangent = add_tangents(tangent, part, call.source);
  }
  call.tangents_out[0] = std::move(tangent);
}

void transpose_overlapped(TransposeCall& call) {
  if (call.is_linear(0) && call.is_linear(1)) throw_not_linear(call, "operand");
  const OverlapSpec& spec = spec_of(call.params);
  const int linear = call.is_linear(0) ? 0 : 1;
  const Array &known = call.in[static_cast<std::size_t>(1 - linear)], &ct = call.cotangents[0];
  OverlapSpec back = spec;
  back.operand = 0;
  back.out = spec.labels(linear);
  if (!spec.moves_operand()) {
    // The cotangent of the pieces that each rank received comes back from all ranks.
    back.kind = spec.kind == OverlapKind::scatter ? OverlapKind::gather : OverlapKind::exchange;
    if (back.kind == OverlapKind::exchange) std::swap(back.part, back.joined);
    back.a = spec.out;
    back.b = spec.labels(1 - linear);
    call.out[static_cast<std::size_t>(linear)] = run_overlapped(back, ct, known, call.source);
    return;
  }
  if (linear == spec.operand) {
    back.kind =
        spec.kind == OverlapKind::gather ? OverlapKind::scatter : OverlapKind::exchange_result;
    if (back.kind == OverlapKind::exchange_result) std::swap(back.part, back.joined);
    back.a = spec.out;
    back.b = spec.labels(1 - linear);
    call.out[static_cast<std::size_t>(linear)] = run_overlapped(back, ct, known, call.source);
    return;
  }
  // For the cotangent of the operand that is not moved, the other operand is moved once more, now
  // to be multiplied with the cotangent.
  back.a = spec.labels(spec.operand);
  back.b = spec.out;
  call.out[static_cast<std::size_t>(linear)] = run_overlapped(back, known, ct, call.source);
}

void batch_overlapped(BatchCall& call) {
  OverlapSpec spec = spec_of(call.params);
  const std::string used = spec.a + spec.b + spec.out;
  char batch_letter = 'A';
  while (place_of(used, batch_letter) >= 0)
    batch_letter = batch_letter == 'Z' ? 'a' : static_cast<char>(batch_letter + 1);
  if (call.is_batched(0)) spec.a.insert(static_cast<std::size_t>(call.dims[0]), 1, batch_letter);
  if (call.is_batched(1)) spec.b.insert(static_cast<std::size_t>(call.dims[1]), 1, batch_letter);
  spec.out.insert(0, 1, batch_letter);
  call.out[0] = run_overlapped(spec, call.in[0], call.in[1], call.source);
  call.out_dims[0] = 0;
}

}  // namespace shmap
