#include "core/compiler/fusion/unfilled.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ir/types_of.h"

namespace shmap {

namespace {

const ProductParams& product_of(const Eqn& e) { return params_as<ProductParams>(*e.params); }

// The parts of an array that a chain of products has written, on each device.
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
  // The number of elements that are written without a gap from the first element on.
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

std::optional<Eqn> without_target(const Eqn& e, const detail::AxisEnv* env) {
  ProductParams params = product_of(e);
  params.whole = e.out[0]->type.dims();
  Eqn made = e;
  made.primitive = &product_p;
  made.in.erase(made.in.begin() + 2);
  if (!makes_its_type(made, params, env)) return std::nullopt;
  made.params = std::make_shared<ProductParams>(std::move(params));
  return made;
}

bool is_update(const Eqn* e) {
  return e && e->primitive == &product_into_p && !product_of(*e).place.is_whole() &&
         !product_of(*e).adds;
}

}  // namespace

bool makes_its_type(const Eqn& e, const ProductParams& params, const detail::AxisEnv* env) {
  ShapedArray type;
  infer_types(*e.primitive, types_of(e.in), params, env, {&type, 1});
  const ShapedArray& wanted = e.out[0]->type;
  return type == wanted && type.weak() == wanted.weak() && type.axes() == wanted.axes();
}

JaxprRef leave_unfilled(const Jaxpr& jaxpr) {
  const ProgramIndex program(jaxpr);
  // The update that writes into the result of `e` and is its only reader; null where there is none.
  const auto after = [&](const Eqn& e) -> const Eqn* {
    const Var* made = e.out[0].get();
    const int user = program.only_user(made);
    const Eqn* next = user < 0 ? nullptr : &program.eqn(user);
    return is_update(next) && next->in[2].var() == made ? next : nullptr;
  };
  Rewriter made(jaxpr);
  for (int i = 0; i < program.size(); ++i) {
    const Eqn& first = program.eqn(i);
    if (!is_update(&first) || is_update(program.made_by(first.in[2]))) continue;
    Coverage coverage(first);
    for (const Eqn* e = after(first); e && !coverage.is_full(); e = after(*e)) coverage.add(*e);
    if (!coverage.is_full()) continue;
    if (auto e = without_target(first, jaxpr.env)) made.put(i, *std::move(e));
  }
  return made.is_edited() ? made.finish() : JaxprRef(&jaxpr);
}

}  // namespace shmap
