#include "core/compiler/passes/known_scalars.h"

#include <algorithm>
#include <cstring>

#include "core/ir/node.h"
#include "core/ops/slicing.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

bool is_index(const ShapedArray& t) {
  return t.rank() == 0 && (is_integer(t.dtype()) || t.dtype() == DType::bool_);
}

std::int64_t to_integer(std::uint64_t bits, DType dtype) {
  const int unused = 64 - 8 * itemsize(dtype);
  bits <<= unused;
  if (is_unsigned_int(dtype) || dtype == DType::bool_)
    return static_cast<std::int64_t>(bits >> unused);
  return static_cast<std::int64_t>(bits) >> unused;
}

}  // namespace

KnownScalars::KnownScalars(const Jaxpr& jaxpr, const detail::MeshImpl& mesh) : mesh_(mesh) {
  for (const Eqn& e : jaxpr.eqns)
    if (e.out.size() == 1 && is_index(e.out[0]->type)) visit(e);
}

std::vector<std::int64_t> KnownScalars::find(const Atom& a) const {
  std::vector<std::int64_t> out;
  Bits bits;
  if (!is_index(a.type()) || !bits_of(a, &bits)) return out;
  for (std::uint64_t b : bits) out.push_back(to_integer(b, a.type().dtype()));
  return out;
}

std::vector<std::int64_t> KnownScalars::offsets_of_part(const Shape& whole, const Shape& part,
                                                        std::span<const Atom> starts) const {
  std::vector<std::int64_t> offsets{0};
  std::int64_t stride = 1;
  for (std::size_t d = whole.size(); d-- > 0; stride *= whole[d]) {
    const std::vector<std::int64_t> known = find(starts[d]);
    if (known.empty()) return {};
    if (known.size() > offsets.size()) offsets.resize(known.size(), offsets[0]);
    for (std::size_t p = 0; p < offsets.size(); ++p)
      offsets[p] += stride * clamp_start(known[known.size() == 1 ? 0 : p], whole[d], part[d]);
  }
  return offsets;
}

bool KnownScalars::bits_of(const Atom& a, Bits* out) const {
  if (a.is_literal()) {
    const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
    std::uint64_t bits = 0;
    std::memcpy(&bits, literal.value, static_cast<std::size_t>(itemsize(literal.type.dtype())));
    *out = {bits};
    return true;
  }
  const auto it = known_.find(a.var());
  if (it == known_.end()) return false;
  *out = it->second;
  return true;
}

// Evaluates elementwise operations with the host's kernels; all backends compute the same integers.
void KnownScalars::visit(const Eqn& e) {
  const Primitive& p = *e.primitive;
  const KernelFn run = p.elementwise ? p.kernel(kHostKind).run : nullptr;
  if (!p.host_scalar && !run) return;
  std::vector<Bits> in(e.in.size());
  std::vector<ShapedArray> types;
  std::size_t devices = p.host_scalar && e.in.empty() ? mesh_.local_count() : 1;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!is_index(e.in[i].type()) || !bits_of(e.in[i], &in[i])) return;
    types.push_back(e.in[i].type());
    devices = std::max(devices, in[i].size());
  }
  Bits made(devices);
  std::vector<std::uint64_t> values(in.size());
  for (std::size_t d = 0; d < devices; ++d) {
    for (std::size_t i = 0; i < in.size(); ++i) values[i] = in[i][in[i].size() == 1 ? 0 : d];
    if (!run) {
      made[d] = p.host_scalar(*e.params, mesh_, static_cast<std::uint32_t>(d), values);
      continue;
    }
    std::vector<const void*> operands;
    for (const std::uint64_t& v : values) operands.push_back(&v);
    void* const result = &made[d];
    const ShapedArray& type = e.out[0]->type;
    run(KernelCall{operands, {&result, 1}, types, {&type, 1}, *e.params});
  }
  known_[e.out[0].get()] = std::move(made);
}

}  // namespace shmap
