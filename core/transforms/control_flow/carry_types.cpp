#include "core/transforms/control_flow/carry_types.h"

#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/runtime/reshard.h"

namespace shmap {

namespace {

std::string described(const ShapedArray& type) {
  return to_string(type) + (type.weak() ? " (weakly typed: made of host scalars)" : "");
}

std::string cast_to(const ShapedArray& type) {
  return std::string("astype(…, ") + short_name(type.dtype()) + ")";
}

bool is_key(const ShapedArray& t) { return t.dtype() == DType::prng_key; }

// The joint dtype and weakness; false where a dtype that is not weak would have to change.
bool join_dtypes(const ShapedArray& a, const ShapedArray& b, Promoted& joint) {
  if (a.dtype() == b.dtype()) {
    joint = {a.dtype(), a.weak() && b.weak()};
    return true;
  }
  if (is_key(a) || is_key(b) || (!a.weak() && !b.weak())) return false;
  joint = promote_types(a.dtype(), a.weak(), b.dtype(), b.weak());
  return (a.weak() || joint.dtype == a.dtype()) && (b.weak() || joint.dtype == b.dtype());
}

}  // namespace

std::vector<CarryType> carry_types(std::span<const Array> carry) {
  std::vector<CarryType> types;
  for (const Array& x : carry)
    types.push_back({node_of(x)->type, node_of(x)->kind == NodeKind::literal});
  return types;
}

ShapedArray join_carry(const FlowSite& site, std::size_t leaf, const CarryType& begin,
                       const Array& end) {
  const ShapedArray &in = begin.type, &out = checked_node(end, site.what, site.source).type;
  const auto both = [&] {
    return std::string(site.what) + ": " + site.path(leaf, "carry") + " has type " + described(in) +
           " at the start of a trip, and the body returns " + described(out) + " for it: ";
  };
  if (!(in.dims() == out.dims())) {
    throw TypeError(both() +
                    "a carry keeps its shape: begin with an init of the shape that the body "
                    "returns (broadcast_to, zeros), or return the init's (reshape, a reduction)" +
                    at_line(site.source));
  }
  Promoted joint;
  if (!join_dtypes(in, out, joint)) {
    throw TypeError(both() + "a carry keeps its dtype: write " + cast_to(in) +
                    " around what the body returns for it, or begin with " + cast_to(out) +
                    " of the init" + at_line(site.source));
  }
  const Trace& trace = current_trace();
  if (trace.checks_variance() && !trace.casts()) {
    const auto missing = [&](const AxisSet& of, const AxisSet& than, const char* where) {
      const AxisSet more = than - of;
      if (more.empty()) return;
      throw TypeError(both() + "it varies over unlike mesh axes: write pbroadcast(…, " +
                      to_string(Axes(more.names())) + ") around " + where +
                      ", or turn auto_pbroadcast on" + at_line(site.source));
    };
    if (!begin.literal) missing(in.axes(), out.axes(), "the init");
    if (node_of(end)->kind != NodeKind::literal)
      missing(out.axes(), in.axes(), "what the body returns");
  }
  return ShapedArray(in.dims(), joint.dtype, joint.weak, in.axes() | out.axes());
}

ShapedArray join_branches(const FlowSite& site, std::size_t leaf, const ShapedArray& a,
                          const std::string& name_a, const ShapedArray& b,
                          const std::string& name_b) {
  const auto begin = [&] {
    return std::string(site.what) + ": " + site.path(leaf, "result") + " has type " + described(a) +
           " in " + name_a + " and " + described(b) + " in " + name_b +
           ": branches have to agree in ";
  };
  if (!(a.dims() == b.dims())) {
    throw TypeError(begin() + "shape: bring one to the other's (broadcast_to, reshape)" +
                    at_line(site.source));
  }
  Promoted joint;
  if (!join_dtypes(a, b, joint)) {
    throw TypeError(begin() + "dtype: write " + cast_to(a) + " around what " + name_b +
                    " returns for it, or " + cast_to(b) + " in " + name_a + at_line(site.source));
  }
  return ShapedArray(a.dims(), joint.dtype, joint.weak, a.axes() | b.axes());
}

void check_y(const FlowSite& site, std::size_t leaf, ShapedArray& joint, const Array& y,
             std::int64_t trip) {
  const ShapedArray& now = checked_node(y, site.what, site.source).type;
  Promoted dtype;
  if (!(joint.dims() == now.dims()) || !join_dtypes(joint, now, dtype)) {
    throw TypeError(std::string(site.what) + ": leaf " + std::to_string(leaf) + " of ys has type " +
                    described(joint) + " in the trips before and " + described(now) + " in trip " +
                    std::to_string(trip) + ": the trips have to return one type, to be stacked" +
                    at_line(site.source));
  }
  joint = ShapedArray(joint.dims(), dtype.dtype, dtype.weak, joint.axes() | now.axes());
}

void require_axes(const FlowSite& site, const std::string& path, const Array& x,
                  const AxisSet& wanted, const std::string& why) {
  const Trace& trace = current_trace();
  const Node& node = *node_of(x);
  const AxisSet missing = wanted - node.type.axes();
  if (missing.empty() || node.kind == NodeKind::literal || !trace.checks_variance() ||
      trace.casts()) {
    return;
  }
  const std::string axes = to_string(Axes(missing.names()));
  throw TypeError(std::string(site.what) + ": " + path + " has type " + to_string(node.type) + " " +
                  why + ": cast it with pbroadcast(…, " + axes + "), or turn auto_pbroadcast on" +
                  at_line(site.source));
}

Array fit(Array x, const ShapedArray& type, SourceLine source) {
  const Node* node = node_of(x);
  if (node->type.dtype() != type.dtype() ||
      (node->kind == NodeKind::literal && node->type.weak() != type.weak())) {
    x = convert_operand(std::move(x), type.dtype(), "a carry, or the result of a branch", source,
                        type.weak());
  } else if (node->type.weak() && !type.weak() && node->kind == NodeKind::stored) {
    // The same blocks under a type that is not weak.
    const auto& stored = static_cast<const StoredNode&>(*node);
    const ShapedArray settled(node->type.dims(), node->type.dtype(), false, node->type.axes());
    x = relabel(stored, settled, stored.sharding, stored.trace, stored.committed);
  }
  node = node_of(x);
  const AxisSet missing = type.axes() - node->type.axes();
  if (missing.empty() || !current_trace().checks_variance()) return x;
  // In eager code a literal is the same on all devices and needs no cast.
  const bool at_once = !current_trace().staged() && !current_trace().transforms();
  if (node->kind == NodeKind::literal && at_once) return x;
  return cast_to_varying(x, missing, source);
}

void check_predicate(const FlowSite& site, const char* noun, const ShapedArray& type) {
  if (type.rank() == 0 && type.dtype() == DType::bool_) return;
  throw TypeError(std::string(site.what) + ": " + noun + " has type " + to_string(type) +
                  ", and a bool scalar is wanted: compare it, or take any(…) or all(…) of it" +
                  at_line(site.source));
}

void check_index(const FlowSite& site, const ShapedArray& type) {
  if (type.rank() == 0 && is_integer(type.dtype())) return;
  throw TypeError(std::string(site.what) + ": the index has type " + to_string(type) +
                  ", and an integer scalar is wanted" + at_line(site.source));
}

}  // namespace shmap
