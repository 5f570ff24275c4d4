#include "core/compiler/fusion/fuse_rules.h"

#include <algorithm>

#include "core/ops/elementwise.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// One thread reduces a row, which must fit into its caches.
constexpr std::int64_t kRowBytes = 256 * 1024;

// Splits a shape into rows and columns, where the dims in the bit mask `inner` are those of a row.
// False where another dim follows one of these (dims of extent 1 do not count).
bool split_shape(const Shape& shape, std::uint32_t inner, FuseSpace* out) {
  *out = FuseSpace();
  bool in_row = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (inner >> d & 1u) {
      in_row = true;
      out->cols *= shape[d];
    } else {
      if (in_row) return false;
      out->rows *= shape[d];
    }
  }
  return true;
}

// A broadcast's result dims, without those of one element.
class BroadcastDims {
 public:
  struct Dim {
    std::int64_t extent;
    bool carried;  // a dim of the operand too, in which the operand is not repeated
  };
  void add(const Dim& dim) { dims_.push_back(dim); }
  std::size_t size() const { return dims_.size(); }
  const Dim& operator[](std::size_t d) const { return dims_[d]; }
  bool any() const {
    return std::any_of(dims_.begin(), dims_.end(), [](const Dim& d) { return d.carried; });
  }
  bool all() const {
    return std::all_of(dims_.begin(), dims_.end(), [](const Dim& d) { return d.carried; });
  }

 private:
  std::vector<Dim> dims_;
};

BroadcastDims broadcast_dims(const Eqn& e) {
  const Shape &from = e.in[0].type().dims(), &to = e.out[0]->type.dims();
  const Dims& targets = params_as<BroadcastParams>(*e.params).dims;
  std::uint32_t carried = 0;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const auto target = static_cast<std::size_t>(targets[d]);
    if (from[d] == to[target]) carried |= 1u << target;
  }
  BroadcastDims dims;
  for (std::size_t d = 0; d < to.size(); ++d)
    if (to[d] != 1) dims.add({to[d], (carried >> d & 1u) != 0});
  return dims;
}

// Where each row of an operand serves several rows, these have at least so many elements: copying
// shorter runs takes as long as writing the broadcast out.
constexpr std::int64_t kShortestRun = 32;

}  // namespace

FuseRole fuse_role(const Eqn& e) {
  if (e.primitive == &random_bits_p)
    return e.in[0].is_literal() || e.out[0]->type.size() == 0 ? FuseRole::other : FuseRole::draw;
  if (e.out.size() != 1 || e.out[0]->type.dtype() == DType::prng_key) return FuseRole::other;
  bool any_var = false;
  for (const Atom& a : e.in) {
    any_var |= !a.is_literal();
    if (a.type().dtype() == DType::prng_key) return FuseRole::other;
  }
  if (!any_var) return FuseRole::other;
  if (e.primitive->elementwise_row != nullptr &&
      is_elementwise(*e.primitive, e.in[0].type().dtype(), e.out[0]->type.dtype()))
    return FuseRole::map;
  if (e.primitive->reduction) return FuseRole::reduce;
  if (e.primitive == &broadcast_in_dim_p) return FuseRole::broadcast;
  if (e.primitive == &reshape_p) return FuseRole::reshape;
  return FuseRole::other;
}

bool reduced_space(const Eqn& e, FuseSpace* out) {
  const ShapedArray& in = e.in[0].type();
  std::uint32_t inner = 0;
  for (std::int64_t d : params_as<ReduceParams>(*e.params).axes) inner |= 1u << d;
  return inner != 0 && split_shape(in.dims(), inner, out) &&
         out->cols * itemsize(in.dtype()) <= kRowBytes;
}

FuseSpace drawn_space(const Eqn& e) {
  const std::int64_t keys = e.in[0].type().size();
  return {keys, e.out[0]->type.size() / keys};
}

bool broadcast_read(const Eqn& e, FusedKind kind, const FuseSpace* space, FuseRead* out) {
  const BroadcastDims dims = broadcast_dims(e);
  *out = {kind};
  if (dims.all()) return true;
  *out = {FusedKind::scalar};
  if (!dims.any()) return true;
  if (space == nullptr || (kind != FusedKind::full && kind != FusedKind::row)) return false;
  // The dims of columns: none of a result of rows, else the inner ones of as many elements.
  std::size_t cut = dims.size();
  std::int64_t cols = 1, rows = 1;
  const std::int64_t wanted = kind == FusedKind::full ? space->cols : 1;
  while (cut > 0 && cols < wanted) cols *= dims[--cut].extent;
  for (std::size_t d = 0; d < cut; ++d) rows *= dims[d].extent;
  if (cols != wanted || rows != space->rows) return false;
  bool carries_cols = false, skips_cols = false;
  for (std::size_t d = cut; d < dims.size(); ++d)
    (dims[d].carried ? carries_cols : skips_cols) = true;
  if (carries_cols && skips_cols) return false;
  // The carried dims of rows must be neighbours: those inside of them repeat each row, those
  // outside repeat all rows.
  FusedProgram::Repeat repeat{1, 1};
  std::size_t d = cut;
  for (; d > 0 && !dims[d - 1].carried; --d) repeat.every *= dims[d - 1].extent;
  for (; d > 0 && dims[d - 1].carried; --d) repeat.count *= dims[d - 1].extent;
  for (; d > 0; --d)
    if (dims[d - 1].carried) return false;
  const bool full = kind == FusedKind::full && (carries_cols || cut == dims.size());
  if (repeat.count == rows) {
    *out = {full ? FusedKind::full : FusedKind::row};
  } else if (repeat.count == 1) {
    *out = {full ? FusedKind::col : FusedKind::scalar};
  } else {
    *out = {full ? FusedKind::full : FusedKind::row, repeat};
  }
  const bool short_runs = repeat.every > 1 && repeat.every * space->cols < kShortestRun;
  return !out->repeats() || (rows * cols > 0 && !short_runs);
}

std::vector<std::int64_t> broadcast_cols(const Eqn& e) {
  const BroadcastDims dims = broadcast_dims(e);
  std::vector<std::int64_t> cols;
  if (dims.all() || !dims.any()) return cols;
  std::int64_t n = 1;
  for (std::size_t d = dims.size(); d > 0 && dims[d - 1].carried == dims[dims.size() - 1].carried;
       --d)
    cols.push_back(n *= dims[d - 1].extent);
  std::reverse(cols.begin(), cols.end());
  return cols;
}

FusedKind fuse_operand_kind(const Eqn& e, FuseRole role, FusedKind kind, const Atom& a) {
  switch (role) {
    case FuseRole::reduce:
      return FusedKind::full;
    case FuseRole::map:
      if (a.is_literal() || (a.type().rank() == 0 && e.out[0]->type.rank() != 0))
        return FusedKind::scalar;
      return kind;
    case FuseRole::draw:
      return a.is_literal() || a.type().size() == 1 ? FusedKind::scalar : FusedKind::row;
    default:
      return kind;
  }
}

}  // namespace shmap
