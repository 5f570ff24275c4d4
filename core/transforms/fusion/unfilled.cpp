#include "core/transforms/fusion/unfilled.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

namespace shmap {

namespace {

const ProductParams& product_of(const Eqn& e) { return params_as<ProductParams>(*e.params); }

// What of an array the products in a row have written, on each device.
class Coverage {
 public:
  explicit Coverage(const Eqn& first)
      : size_(first.out[0]->type.size()), is_one_piece_(true), devices_(1) {
    add(first);
  }

  void add(const Eqn& e) {
    const ProductSlice& part = product_of(e).place;
    is_one_piece_ = is_one_piece_ && is_contiguous_part(e.out[0]->type.dims(), part.sizes);
    devices_ = std::max(devices_, part.offsets.size());
    parts_.push_back(&part);
  }

  bool is_full() const {
    for (std::size_t p = 0; is_one_piece_ && p < devices_; ++p)
      if (written(static_cast<std::uint32_t>(p)) < size_) return false;
    return is_one_piece_;
  }

 private:
  // How many elements from the first on.
  std::int64_t written(std::uint32_t position) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
    for (const ProductSlice* part : parts_)
      pieces.push_back({part->offset(position), part->sizes.num_elements()});
    std::sort(pieces.begin(), pieces.end());
    std::int64_t end = 0;
    for (const auto& [offset, size] : pieces)
      if (offset <= end) end = std::max(end, offset + size);
    return end;
  }

  std::int64_t size_;
  bool is_one_piece_;
  std::size_t devices_;
  std::vector<const ProductSlice*> parts_;
};

void drop_target(Eqn& e, const detail::AxisEnv* env) {
  ProductParams params = product_of(e);
  params.whole = e.out[0]->type.dims();
  Eqn made = e;
  made.primitive = &product_p;
  made.in.erase(made.in.begin() + 2);
  if (!makes_its_type(made, params, env)) return;
  made.params = std::make_shared<ProductParams>(std::move(params));
  e = std::move(made);
}

}  // namespace

bool makes_its_type(const Eqn& e, const ProductParams& params, const detail::AxisEnv* env) {
  std::vector<ShapedArray> types;
  for (const Atom& a : e.in) types.push_back(a.type());
  ShapedArray type;
  infer_types(*e.primitive, types, params, env, {&type, 1});
  const ShapedArray& wanted = e.out[0]->type;
  return type == wanted && type.weak() == wanted.weak() && type.axes() == wanted.axes();
}

void leave_unfilled(Jaxpr& jaxpr) {
  std::vector<Eqn>& eqns = jaxpr.eqns;
  const auto is_update = [](const Eqn& e) {
    return e.primitive == &product_into_p && !product_of(e).place.is_whole() && !product_of(e).adds;
  };
  VarMap<Eqn*> updates;  // by their targets
  VarMap<int> uses;
  std::unordered_set<const Var*> updated;
  for (Eqn& e : eqns) {
    for (const Atom& a : e.in)
      if (!a.is_literal()) ++uses[a.var()];
    if (!is_update(e)) continue;
    updates[e.in[2].var()] = &e;
    updated.insert(e.out[0].get());
  }
  for (const Atom& a : jaxpr.outs)
    if (!a.is_literal()) ++uses[a.var()];
  for (Eqn& first : eqns) {
    if (!is_update(first) || updated.count(first.in[2].var())) continue;
    Coverage coverage(first);
    const Eqn* last = &first;
    while (!coverage.is_full()) {
      const Var* made = last->out[0].get();
      const auto next = updates.find(made);
      if (uses[made] != 1 || next == updates.end()) break;
      last = next->second;
      coverage.add(*last);
    }
    if (coverage.is_full()) drop_target(first, jaxpr.env);
  }
}

}  // namespace shmap
