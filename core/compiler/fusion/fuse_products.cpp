#include "core/compiler/fusion/fuse_products.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/env.h"
#include "core/base/float_format.h"
#include "core/compiler/fusion/activations.h"
#include "core/compiler/fusion/unfilled.h"
#include "core/compiler/passes/dead_code.h"
#include "core/compiler/passes/known_scalars.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/elementwise.h"
#include "core/ops/product.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/runtime/op_site.h"

namespace shmap {

namespace {

bool is_matrix_dtype(DType t) { return t == DType::f32 || is_half(t) || t == DType::f64; }

// A product, and the equations that are merged with it.
struct Found {
  int dot;
  std::vector<Atom> factors;
  const Var* value;          // the value of the last merged equation
  std::vector<int> members;  // the merged equations; the fused equation replaces the last of them
  ProductParams params;
  std::optional<Atom> bias, target;
};

class ProductFuser {
 public:
  ProductFuser(const Jaxpr& jaxpr, const detail::MeshImpl& mesh)
      : jaxpr_(jaxpr), mesh_(mesh), uses_(jaxpr), made_(jaxpr) {}

  JaxprRef run() {
    // From the last product to the first: of two products whose results are added, the later one
    // adds to the result of the earlier one.
    for (int i = uses_.size(); i-- > 0;)
      if (uses_.eqn(i).primitive == &dot_general_p) fuse_at(i);
    if (!made_.is_edited()) return JaxprRef(&jaxpr_);
    // The equations that made targets and broadcast biases may now be dead.
    return remove_dead_code(*leave_unfilled(*made_.finish()));
  }

 private:
  void fuse_at(int i) {
    const Eqn& e = uses_.eqn(i);
    const ShapedArray& type = e.out[0]->type;
    // Products without elements or without terms stay dot_general.
    if (!is_matrix_dtype(type.dtype()) || type.size() == 0 || e.in[0].type().size() == 0 ||
        e.in[0].is_literal() || e.in[1].is_literal())
      return;
    Found f{i, e.in, e.out[0].get(), {i}, {}, {}, {}};
    f.params.dot = params_as<DotParams>(*e.params);
    const bool slices_lhs = take_slice(f, 0, f.params.lhs);
    const bool slices_rhs = take_slice(f, 1, f.params.rhs);
    while (take_term(f)) {
    }
    take_activation(f);
    take_update(f);
    if (f.members.size() > 1 || slices_lhs || slices_rhs) replace(f);
  }

  // The only equation that reads f's value, or null.
  const Eqn* next(const Found& f) const {
    const int i = uses_.only_user(f.value);
    return i < 0 || made_.is_gone(i) ? nullptr : &uses_.eqn(i);
  }
  void take(Found& f, int i) const {
    f.members.push_back(i);
    f.value = uses_.eqn(i).out[0].get();
  }
  // Whether the product can read `a` without waiting for more collectives than it does.
  bool is_in_time(const Found& f, const Atom& a) const {
    const Eqn& dot = uses_.eqn(f.dot);
    return uses_.depth(a) <= std::max(uses_.depth(dot.in[0]), uses_.depth(dot.in[1]));
  }
  bool is_operand(const Found& f, const Atom& a) const {
    return f.factors[0] == a || f.factors[1] == a;
  }

  // The first dim of the result that comes from rhs alone.
  int first_column(const Found& f) const {
    return f.value->type.rank() -
           static_cast<int>(free_dims(uses_.eqn(f.dot).in[1].type().rank(),
                                      f.params.dot.rhs_contracting, f.params.dot.rhs_batch)
                                .size());
  }

  // Reads factor i directly from the array of which it is a slice; false where it is not such a
  // slice.
  bool take_slice(Found& f, std::size_t i, ProductSlice& part) {
    const Eqn* slice = uses_.made_by(f.factors[i]);
    if (!slice || slice->primitive != &dynamic_slice_p || slice->in[0].is_literal() ||
        uses_.only_user(f.factors[i].var()) != f.dot)
      return false;
    const Shape& sizes = f.factors[i].type().dims();
    if (!is_contiguous_part(slice->in[0].type().dims(), sizes)) return false;
    part.offsets = find_offsets(slice->in[0].type().dims(), sizes, *slice, 1);
    if (part.is_whole()) return false;
    part.sizes = sizes;
    f.factors[i] = slice->in[0];
    return true;
  }

  bool take_term(Found& f) const {
    const Eqn* e = next(f);
    if (!e || e->primitive != &add_p || e->in[0] == e->in[1]) return false;
    const Atom& other = e->in[e->in[0].var() == f.value];
    if (other.is_literal() || !is_in_time(f, other)) return false;
    const ShapedArray &type = f.value->type, &term = other.type();
    if (term.dtype() != type.dtype() || !(term.dims() == type.dims())) return false;
    const Eqn* maker = uses_.made_by(other);
    if (maker && maker->primitive == &broadcast_in_dim_p) {
      // Other broadcasts are added by a fused elementwise operation, which does not store the
      // broadcast.
      if (f.bias || !is_bias(f, *maker)) return false;
      f.bias = maker->in[0];
    } else {
      if (f.target || is_operand(f, other)) return false;
      f.target = other;
      f.params.adds = true;
    }
    take(f, uses_.only_user(f.value));
    return true;
  }

  // Whether the broadcast gives each column one number: its operand has every dim of the columns,
  // and no other dim.
  bool is_bias(const Found& f, const Eqn& broadcast) const {
    const Atom& from = broadcast.in[0];
    const Shape& to = broadcast.out[0]->type.dims();
    const Dims& dims = params_as<BroadcastParams>(*broadcast.params).dims;
    if (from.is_literal() || f.value->type.dtype() == DType::f64) return false;
    std::uint32_t carried = 0;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (d > 0 && dims[d] <= dims[d - 1]) return false;
      const auto target = static_cast<std::size_t>(dims[d]);
      if (from.type().dims()[d] == to[target]) carried |= 1u << target;
    }
    const auto first = static_cast<std::size_t>(first_column(f));
    for (std::size_t d = 0; d < to.size(); ++d)
      if (to[d] != 1 && (carried >> d & 1u) != (d >= first)) return false;
    return true;
  }

  void take_activation(Found& f) const {
    if (f.value->type.dtype() == DType::f64) return;
    FoundActivation found = find_activation(uses_, f.value);
    const std::vector<int>& eqns = found.eqns;
    if (found.activation == Activation::none ||
        std::any_of(eqns.begin(), eqns.end(), [&](int i) { return made_.is_gone(i); }))
      return;
    f.members.insert(f.members.end(), eqns.begin(), eqns.end() - 1);
    take(f, eqns.back());
    f.params.activation = found.activation;
  }

  void take_update(Found& f) {
    const Eqn* e = next(f);
    if (!e || e->primitive != &dynamic_update_slice_p || e->in[1].is_literal() ||
        e->in[1].var() != f.value || e->in[0].is_literal())
      return;
    const Atom& whole = e->in[0];
    if (!is_in_time(f, whole) || is_operand(f, whole) || (f.bias && *f.bias == whole)) return;
    if (f.target && !is_read_from(*f.target, *e)) return;
    ProductStrides place;
    const int batch = static_cast<int>(f.params.dot.lhs_batch.size());
    if (!place_product(whole.type().dims(), f.value->type.dims(), batch, first_column(f) - batch,
                       &place))
      return;
    std::vector<std::int64_t> offsets =
        find_offsets(whole.type().dims(), f.value->type.dims(), *e, 2);
    if (offsets.empty()) return;
    f.params.place = {f.value->type.dims(), std::move(offsets)};
    f.target = whole;
    take(f, uses_.only_user(f.value));
  }

  // Whether the term is exactly the slice that the update replaces, and has no other reader.
  bool is_read_from(const Atom& term, const Eqn& update) const {
    const Eqn* slice = uses_.made_by(term);
    if (!slice || slice->primitive != &dynamic_slice_p || uses_.only_user(term.var()) < 0 ||
        !(slice->in[0] == update.in[0]))
      return false;
    for (std::size_t d = 1; d < slice->in.size(); ++d)
      if (!(slice->in[d] == update.in[d + 1])) return false;
    return true;
  }

  // The offset of a part whose start indices are the operands from `first` on: as
  // KnownScalars::offsets_of_part.
  std::vector<std::int64_t> find_offsets(const Shape& whole, const Shape& part, const Eqn& e,
                                         std::size_t first) {
    if (!scalars_) scalars_.emplace(jaxpr_, mesh_);
    return scalars_->offsets_of_part(whole, part, std::span(e.in).subspan(first));
  }

  void replace(Found& f) {
    Eqn made;
    made.primitive = f.target ? &product_into_p : &product_p;
    made.in = f.factors;
    if (f.target) made.in.push_back(*f.target);
    if (f.bias) made.in.push_back(*f.bias);
    f.params.bias = f.bias.has_value();
    const int last = *std::max_element(f.members.begin(), f.members.end());
    made.out = uses_.eqn(last).out;
    made.source = uses_.eqn(f.dot).source;
    if (!makes_its_type(made, f.params, jaxpr_.env)) return;
    made.params = std::make_shared<ProductParams>(std::move(f.params));
    for (int i : f.members) made_.remove(i);
    made_.put(last, std::move(made));
  }

  const Jaxpr& jaxpr_;
  const detail::MeshImpl& mesh_;
  const ProgramIndex uses_;
  std::optional<KnownScalars> scalars_;
  Rewriter made_;
};

}  // namespace

JaxprRef fuse_products(const Jaxpr& jaxpr, const detail::MeshImpl& mesh) {
  const bool any = std::any_of(jaxpr.eqns.begin(), jaxpr.eqns.end(),
                               [](const Eqn& e) { return e.primitive == &dot_general_p; });
  return any ? ProductFuser(jaxpr, mesh).run() : JaxprRef(&jaxpr);
}

bool can_fuse_products(DeviceKind kind) {
  return product_p.kernel(kind).run && env::flag(env::Var::fuse_products) && !checks_nans();
}

void register_pass_fuse_products() {
  register_pass(
      {.order = PassOrder::fuse_products,
       .name = "fuse_products",
       .run = [](const Jaxpr& jaxpr,
                 const PassContext& context) { return fuse_products(jaxpr, context.mesh); },
       .runs_on = can_fuse_products,
       .merges = true});
}

}  // namespace shmap
