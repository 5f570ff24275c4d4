// The parameters of attention and of its derivatives, read from text and from values.
#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

#include "core/extend/param_reader.h"
#include "core/ops/attention_grad.h"

namespace shmap {

namespace {

double number(ParamReader& r, const char* name) {
  const std::string text = r.text(name);
  double value = 0;  // strtod would read it by the locale
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end)
    r.fail("'" + std::string(name) + "' is '" + text + "', and no number");
  return value;
}

// Reads the dims of an operand. No dim occurs twice. -1 stands for a dim along which the operand
// repeats: any dim of a bias or mask, or a batch dim of k and v, but no dim of q. For q, k and v
// all dims must be listed, with the features' dim last.
Dims dims(ParamReader& r, const char* name, std::size_t operand, bool is_scores = false) {
  const Dims given = r.dims(name);
  if (operand >= r.operands().size()) r.fail("'" + std::string(name) + "' needs an operand");
  const int rank = r.operands()[operand].rank();
  std::uint64_t seen = 0;
  int named = 0;
  bool fits = given.size() >= 2;
  for (std::int64_t d : given) {
    fits = fits && d >= -1 && d < rank && (d < 0 || (seen >> d & 1u) == 0);
    if (!fits || d < 0) continue;
    seen |= std::uint64_t{1} << d;
    ++named;
  }
  if (!is_scores)
    fits = fits && named == rank && given.back() == rank - 1 &&
           (operand > 0 || given.size() == static_cast<std::size_t>(rank));
  if (!fits)
    r.fail("'" + std::string(name) + "' does not name the dims of operand " +
           std::to_string(operand) + " of type " + to_string(r.operands()[operand]));
  return given;
}

std::shared_ptr<const Params> read_attention(ParamReader& r) {
  AttentionParams p;
  p.q_dims = dims(r, "q_dims", 0);
  p.k_dims = dims(r, "k_dims", 1);
  p.v_dims = dims(r, "v_dims", 2);
  p.out_dims = dims(r, "out_dims", 0);
  if (r.has("bias_dims")) p.bias_dims = dims(r, "bias_dims", 3, true);
  if (r.has("mask_dims")) p.mask_dims = dims(r, "mask_dims", p.bias_dims.empty() ? 3 : 4, true);
  p.out_dtype = r.dtype("out_dtype");
  p.scale = number(r, "scale");
  if (!is_kernel_scale(p.scale)) r.fail("'scale' must be positive and finite in f32");
  if (r.has("masked")) p.masked = number(r, "masked");
  if (r.has("causal_offset")) {
    p.causal = true;
    p.causal_offset = r.integer("causal_offset");
  }
  if (r.has("keeps_sums")) p.keeps_sums = r.flag("keeps_sums");
  if (r.has("tangents")) p.tangents = r.dims("tangents");
  for (std::int64_t t : p.tangents)
    if (t < 0 || t > 2) r.fail("'tangents' has another number than 0, 1 and 2");
  return std::make_shared<AttentionParams>(p);
}

}  // namespace

void register_attention_syntax() {
  attention_p.syntax = {3, 5, read_attention, nullptr};
  attention_tangent_p.syntax = {6, 10, read_attention, nullptr};
  attention_grad_p.syntax = {6, 8, read_attention, nullptr};
}

}  // namespace shmap
