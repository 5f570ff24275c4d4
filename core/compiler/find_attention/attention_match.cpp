#include "core/compiler/find_attention/attention_match.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/base/float_format.h"
#include "core/compiler/find_attention/causal_mask.h"
#include "core/ops/dot.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A mask is split so often at most. (Masks that share halves could be split in many ways.)
constexpr int kMostSplits = 32;

bool is_narrow_float(DType dtype) { return is_half(dtype) || dtype == DType::f32; }

// One operand of a dot_general. is_plain: it has exactly one contracted dim, and one dim that is
// neither contracted nor a batch dim.
struct Side {
  Side(const Eqn& e, int side) : operand(e.in[at(side)]) {
    const auto& p = params_as<DotParams>(*e.params);
    const Dims& contracting = side ? p.rhs_contracting : p.lhs_contracting;
    batch = side ? p.rhs_batch : p.lhs_batch;
    const Dims rest = free_dims(operand.type().rank(), contracting, batch);
    is_plain = contracting.size() == 1 && rest.size() == 1 && !operand.is_literal();
    if (!is_plain) return;
    contracted = contracting[0];
    free = rest[0];
  }
  const Atom& operand;
  Dims batch;
  bool is_plain = false;
  std::int64_t contracted = 0, free = 0;
};

// Matches the equations that lead to a product one of whose operands (left or right) may be the
// weights.
class AttentionMatcher {
 public:
  AttentionMatcher(const ProgramIndex& program, int product, int weights_side)
      : program_(program),
        product_(product),
        weights_(program.eqn(product), weights_side),
        values_(program.eqn(product), 1 - weights_side),
        weights_first_(weights_side == 0) {}

  std::optional<AttentionMatch> run(AttentionCheck takes) {
    if (!weights_.is_plain || !values_.is_plain) return std::nullopt;
    rank_ = weights_.operand.type().rank();
    row_ = static_cast<int>(weights_.free);
    column_ = static_cast<int>(weights_.contracted);
    if (!match_weights() || !place_values() || !place_result()) return std::nullopt;
    for (DType dtype : found_.dtypes)
      if (dtype != DType::f32 && dtype != q_->type().dtype()) return std::nullopt;
    if (!is_all_their_use()) return std::nullopt;
    return made(takes);
  }

 private:
  enum Stage { selecting, adding, scaling, multiplying };  // from the last equation to the first

  struct Found {
    std::vector<int> members;
    std::vector<DType> dtypes;
    const Atom *bias = nullptr, *mask = nullptr;
    IntList bias_places, mask_places;
    double scale = 1, masked = 0;
    bool selects = false, causal = false;
    std::int64_t causal_offset = 0;
  };

  // ---- weights = exp(s - max(s)) / sum(exp(s - max(s)))
  bool match_weights() {
    const Atom* weights = &weights_.operand;
    while (const Eqn* e = program_.made_by(*weights, convert_element_type_p)) {
      if (!take(*weights)) return false;
      weights = &e->in[0];
    }
    const Eqn* quotient = program_.made_by(*weights, div_p);
    if (!quotient || !take(*weights)) return false;
    const Atom& power = quotient->in[0];
    const Eqn* exponential = program_.made_by(power, exp_p);
    if (!exponential || !take(power) || !match_reduced(quotient->in[1], reduce_sum_p, power))
      return false;
    // Without the maximum, exp may overflow where the kernels, which subtract it, do not.
    const Atom& shifted = exponential->in[0];
    const Eqn* difference = program_.made_by(shifted, sub_p);
    if (!difference || !take(shifted) ||
        !match_reduced(difference->in[1], reduce_max_p, difference->in[0]))
      return false;
    return match_scores(difference->in[0], own_places(rank_), selecting);
  }

  // Whether `a` is `of`, reduced over the columns and repeated along them.
  bool match_reduced(const Atom& a, const Primitive& primitive, const Atom& of) {
    if (a.type().rank() != rank_ || of.is_literal() || of.type().rank() != rank_) return false;
    const Found before = found_;
    IntList places = own_places(rank_);
    const Atom* now = &a;
    for (int i = program_.maker(*now); i >= 0; i = program_.maker(*now)) {
      const Eqn& e = program_.eqn(i);
      if (!take(*now)) break;
      if (e.primitive == &primitive) {
        if (!(e.in[0] == of) || !reduces_columns(e, places)) break;
        return true;
      }
      if (!go_through_view(e, &places)) break;
      now = &e.in[0];
    }
    found_ = before;
    return false;
  }
  bool reduces_columns(const Eqn& e, const IntList& places) const {
    const Dims& axes = params_as<ReduceParams>(*e.params).axes;
    if (axes.size() != 1 || axes[0] != column_) return false;
    for (std::size_t d = 0; d < places.size(); ++d) {
      const std::int64_t own = static_cast<std::int64_t>(d) + (at(column_) <= d ? 1 : 0);
      if (places[d] != own && e.out[0]->type.dims()[d] != 1) return false;
    }
    return true;
  }

  // Matches the equations of the scores. places: for each dim of the scores the dim of the weights.
  bool match_scores(const Atom& a, const IntList& places, Stage stage) {
    const int i = program_.maker(a);
    if (i < 0 || !take(a)) return false;
    const Eqn& e = program_.eqn(i);
    if (e.primitive == &dot_general_p) return place_scores(e, places);
    if (e.primitive == &convert_element_type_p) return match_scores(e.in[0], places, stage);
    if (e.primitive == &transpose_p) {
      IntList inside = places;
      return go_through_view(e, &inside) && match_scores(e.in[0], inside, stage);
    }
    if (e.primitive == &select_n_p && stage == selecting) return match_selection(e, places);
    if (e.primitive == &add_p && stage <= adding)
      return match_bias(e, 0, places) || match_bias(e, 1, places);
    if (e.primitive == &mul_p && stage <= scaling)
      return match_scale(e, 0, places) || match_scale(e, 1, places);
    if (e.primitive == &div_p && stage <= scaling) return match_scale(e, 0, places);
    return false;
  }

  bool match_scale(const Eqn& e, std::size_t scores, const IntList& places) {
    double factor = 0;
    if (!literal_number(e.in[1 - scores], &factor)) return false;
    if (e.primitive == &div_p) factor = 1 / factor;
    if (!is_kernel_scale(factor)) return false;
    found_.scale = factor;
    return match_scores(e.in[scores], places, multiplying);
  }

  bool match_bias(const Eqn& e, std::size_t scores, const IntList& places) {
    const Atom& bias = e.in[1 - scores];
    if (bias.is_literal()) return false;
    const Found before = found_;
    found_.dtypes.push_back(bias.type().dtype());
    found_.bias_places = places_of(bias, places);
    found_.bias = source_of(bias, &found_.bias_places);
    if (match_scores(e.in[scores], places, scaling)) return true;
    found_ = before;
    return false;
  }

  // where(keep, scores, literal), or where(drop, literal, scores).
  bool match_selection(const Eqn& e, const IntList& places) {
    const Atom& which = e.in[0];
    if (which.is_literal() || which.type().dtype() != DType::bool_ || e.in.size() != 3)
      return false;
    const bool drops = e.in[2].is_literal();
    double masked = 0;
    if (!literal_number(e.in[drops ? 2 : 1], &masked) || std::isnan(masked)) return false;
    if (masked > 0 || (found_.selects && masked != found_.masked)) return false;
    found_.selects = true;
    found_.masked = masked;
    return match_mask(which, places_of(which, places), drops) &&
           match_scores(e.in[drops ? 1 : 2], places, selecting);
  }

  bool match_mask(const Atom& mask, const IntList& places, bool drops) {
    if (!found_.causal) {
      const auto offset = causal_offset(program_, mask, places, row_, column_, drops);
      if (offset) {
        found_.causal = true;
        found_.causal_offset = *offset;
        return true;
      }
    }
    IntList inside = places;
    const Atom* source = source_of(mask, &inside);
    if (const Eqn* e = program_.made_by(*source, not__p)) {
      const Found before = found_;
      if (match_mask(e->in[0], inside, !drops)) return true;
      found_ = before;
    }
    if (const Eqn* e = program_.made_by(*source, drops ? bit_or_p : bit_and_p)) {
      // Splitting the mask pays only if one half is causal, because the kernel then does not read
      // it.
      for (const std::size_t first : {0u, 1u}) {
        const Found before = found_;
        const Atom &half = e->in[first], &other = e->in[1 - first];
        if (!found_.causal && ++splits_ <= kMostSplits &&
            match_mask(half, places_of(half, inside), drops) && found_.causal &&
            match_mask(other, places_of(other, inside), drops))
          return true;
        found_ = before;
      }
    }
    if (drops || found_.mask) return false;
    found_.mask = source;
    found_.mask_places = inside;
    return true;
  }

  // The places of an operand of an elementwise equation, given those of the equation's result: a
  // scalar among them repeats along all dims.
  static IntList places_of(const Atom& a, const IntList& places) {
    return a.type().rank() == 0 ? IntList() : places;
  }

  // The operand that `a` repeats, going back through repetitions that are the same on all
  // devices.
  const Atom* source_of(const Atom& a, IntList* places) const {
    const Atom *now = &a, *source = now;
    IntList inside = *places;
    for (int i = program_.maker(*now); i >= 0; i = program_.maker(*now)) {
      if (!go_through_repetition(program_.eqn(i), &inside)) break;
      now = &program_.eqn(i).in[0];
      if (std::find(inside.begin(), inside.end(), kApart) != inside.end()) continue;
      source = now;
      *places = inside;
    }
    return source;
  }

  // ---- the dims' roles
  bool place_scores(const Eqn& e, const IntList& places) {
    const Side left(e, 0), right(e, 1);
    if (!left.is_plain || !right.is_plain || e.out[0]->type.rank() != rank_) return false;
    const std::size_t batch = left.batch.size();
    const bool in_order = places[batch] == row_ && places[batch + 1] == column_;
    if (!in_order && !(places[batch] == column_ && places[batch + 1] == row_)) return false;
    const Side &of_q = in_order ? left : right, &of_k = in_order ? right : left;
    place(of_q, places, of_q.contracted, &q_dims_);
    place(of_k, places, of_k.contracted, &k_dims_);
    q_ = before_transposition(of_q.operand, &q_dims_);
    k_ = before_transposition(of_k.operand, &k_dims_);
    return true;
  }

  bool place_values() {
    if (values_.operand.type().dtype() != q_->type().dtype()) return false;
    place(values_, weights_.batch, values_.free, &v_dims_);
    v_dims_[v_dims_.size() - 2] = values_.contracted;
    v_ = before_transposition(values_.operand, &v_dims_);
    return true;
  }

  // Sets `dims` to the dims of one side in the order [batch…, row, feature], batch dims as in the
  // weights. `places`: the weights' dims of that side's batch dims.
  void place(const Side& side, const IntList& places, std::int64_t feature, Dims* dims) const {
    *dims = Dims();
    for (int d = 0; d < rank_; ++d) {
      if (d == row_ || d == column_) continue;
      for (std::size_t i = 0; i < side.batch.size(); ++i)
        if (places[i] == d) dims->push_back(side.batch[i]);
    }
    dims->push_back(side.free);
    dims->push_back(feature);
  }

  // The operand of a transposition, with `dims` changed accordingly, if the features are its last
  // dim; otherwise `a`.
  const Atom* before_transposition(const Atom& a, Dims* dims) const {
    const Eqn* e = program_.made_by(a, transpose_p);
    if (!e || e->in[0].is_literal()) return &a;
    const Dims& permutation = params_as<TransposeParams>(*e->params).permutation;
    Dims before = *dims;
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = permutation[at(before[i])];
    if (before.back() != a.type().rank() - 1) return &a;
    *dims = before;
    return &e->in[0];
  }

  // Sets the result: the product's result, or that of a transposition which is its only reader.
  bool place_result() {
    const Eqn& e = program_.eqn(product_);
    const std::size_t batch = weights_.batch.size();
    IntList places;  // of [batch…, row, feature], in the product
    for (int d = 0; d < rank_; ++d) {
      if (d == row_ || d == column_) continue;
      for (std::size_t i = 0; i < batch; ++i)
        if (weights_.batch[i] == d) places.push_back(static_cast<std::int64_t>(i));
    }
    const auto first = static_cast<std::int64_t>(batch);
    places.push_back(weights_first_ ? first : first + 1);
    places.push_back(weights_first_ ? first + 1 : first);
    found_.members.push_back(product_);
    result_ = &e.out[0];
    const std::span<const int> users = program_.users(result_->get());
    if (users.size() == 1 && !program_.is_result(result_->get())) {
      const Eqn& user = program_.eqn(users[0]);
      if (user.primitive == &transpose_p) {
        const Dims& permutation = params_as<TransposeParams>(*user.params).permutation;
        IntList moved = places;
        for (std::size_t d = 0; d < permutation.size(); ++d)
          for (std::size_t i = 0; i < places.size(); ++i)
            if (places[i] == permutation[d]) moved[i] = static_cast<std::int64_t>(d);
        if (moved.back() == rank_ - 1) {
          places = moved;
          result_ = &user.out[0];
          found_.members.push_back(users[0]);
        }
      }
    }
    for (std::int64_t d : places) out_dims_.push_back(d);
    return out_dims_.back() == rank_ - 1;
  }

  // ---- the equation
  // Takes the equation that computes `a`, an intermediate value, as part of the attention.
  bool take(const Atom& a) {
    if (!is_narrow_float(a.type().dtype())) return false;
    found_.members.push_back(program_.maker(a));
    found_.dtypes.push_back(a.type().dtype());
    return true;
  }

  bool is_all_their_use() {
    std::vector<int>& members = found_.members;
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    for (int i : members) {
      const Var* v = program_.eqn(i).out[0].get();
      if (v == result_->get()) continue;
      if (program_.is_result(v)) return false;
      for (int user : program_.users(v))
        if (!std::binary_search(members.begin(), members.end(), user)) return false;
    }
    return true;
  }

  Dims score_dims(const IntList& places) const {
    Dims dims;
    const auto add = [&](int place) {
      std::int64_t dim = -1;
      for (std::size_t d = 0; d < places.size(); ++d)
        if (places[d] == place) dim = static_cast<std::int64_t>(d);
      dims.push_back(dim);
    };
    for (int d = 0; d < rank_; ++d)
      if (d != row_ && d != column_) add(d);
    add(row_);
    add(column_);
    return dims;
  }

  std::optional<AttentionMatch> made(AttentionCheck takes) const {
    AttentionMatch match;
    AttentionParams p;
    match.eqn.primitive = &attention_p;
    match.eqn.in = {*q_, *k_, *v_};
    p.q_dims = q_dims_;
    p.k_dims = k_dims_;
    p.v_dims = v_dims_;
    p.out_dims = out_dims_;
    if (found_.bias) {
      match.eqn.in.push_back(*found_.bias);
      p.bias_dims = score_dims(found_.bias_places);
    }
    if (found_.mask) {
      match.eqn.in.push_back(*found_.mask);
      p.mask_dims = score_dims(found_.mask_places);
    }
    p.scale = found_.scale;
    p.masked = found_.masked;
    p.causal = found_.causal;
    p.causal_offset = found_.causal_offset;
    p.out_dtype = (*result_)->type.dtype();
    std::vector<ShapedArray> types;
    for (const Atom& a : match.eqn.in) {
      if (a.is_literal()) return std::nullopt;
      types.push_back(a.type());
    }
    const auto form = attention_form(types, p);
    if (!form || !takes(*form)) return std::nullopt;
    match.eqn.params = std::make_shared<AttentionParams>(std::move(p));
    match.eqn.out = {*result_};
    match.eqn.source = program_.eqn(product_).source;
    match.members = found_.members;
    return match;
  }

  const ProgramIndex& program_;
  const int product_;
  const Side weights_, values_;
  const bool weights_first_;
  int rank_ = 0, row_ = 0, column_ = 0;
  Found found_;
  int splits_ = 0;
  const Atom *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
  Dims q_dims_, k_dims_, v_dims_, out_dims_;
  const VarRef* result_ = nullptr;
};

}  // namespace

std::optional<AttentionMatch> match_attention(const ProgramIndex& program, int product,
                                              AttentionCheck takes) {
  for (const int weights_side : {0, 1}) {
    auto match = AttentionMatcher(program, product, weights_side).run(takes);
    if (match) return match;
  }
  return std::nullopt;
}

}  // namespace shmap
