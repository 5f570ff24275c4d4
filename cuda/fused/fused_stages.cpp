#include "cuda/fused/fused_stages.h"

#include <algorithm>

#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"

namespace shmap::cuda {

using OpKind = FusedProgram::OpKind;

FusedStages::FusedStages(const FusedProgram& program) : p_(program) {
  for (int v = 0; v < p_.value_count(); ++v) {
    const bool copy = !p_.is_input(v) && op(v).op == OpKind::broadcast;
    Value value{copy ? root(op(v).operands[0]) : v, copy ? FusedKind::scalar : p_.kind(v)};
    if (copy) value.kind = at(value.root).kind;
    if (p_.is_input(v) && p_.size(value.kind) == 1) value.kind = FusedKind::scalar;
    // In a program of one row, a value of columns has all elements: it is full.
    if (!copy && value.kind == FusedKind::col && p_.rows() == 1) value.kind = FusedKind::full;
    values_.push_back(value);
  }
  for (const FusedProgram::Output& o : p_.outputs()) mark_used(root(o.value));
  for (int v = 0; v < p_.value_count(); ++v)
    if (at(v).used) used_.push_back(v);
  find_loops();
  plan(true);
  count_words();
  find_overwrites();
}

bool FusedStages::is_reduction(int v) const {
  return !p_.is_input(v) && op(v).op == OpKind::reduce;
}
bool FusedStages::has_reductions() const {
  return std::any_of(used_.begin(), used_.end(), [this](int v) { return is_reduction(v); });
}
int FusedStages::summed_bytes() const {
  for (int v : used_) {
    if (!is_reduction(v) || !is_floating(p_.dtype(v))) continue;
    const auto reduction = op(v).primitive->reduction;
    if (reduction == Reduction::sum || reduction == Reduction::prod) return itemsize(p_.dtype(v));
  }
  return 0;
}
bool FusedStages::is_draw(int v) const { return !p_.is_input(v) && op(v).op == OpKind::draw; }
std::int64_t FusedStages::ops() const {
  constexpr std::int64_t kDrawOps = 20;  // operations that a draw counts as; some hundred
                                         // instructions, where a map has a few
  std::int64_t n = 0;
  for (int v : used_) {
    if (p_.is_input(v) || is_reduction(v)) continue;
    if (kind(v) == FusedKind::full || kind(v) == FusedKind::col) n += is_draw(v) ? kDrawOps : 1;
  }
  return n;
}

void FusedStages::mark_used(int v) {
  if (at(v).used) return;
  at(v).used = true;
  if (p_.is_input(v)) return;
  for (int x : op(v).operands) mark_used(root(x));
}

void FusedStages::find_loops() {
  for (int v : used_) {
    Value& value = at(v);
    if (p_.is_input(v)) continue;
    for (int x : op(v).operands) value.known = std::max(value.known, at(root(x)).known);
    if (is_reduction(v)) loops_ = std::max(loops_, ++value.known);
  }
  for (std::size_t o = 0; o < p_.outputs().size(); ++o) {
    if (p_.kind(p_.outputs()[o].value) == FusedKind::full)
      loops_ = std::max(loops_, loop_of_output(o) + 1);
  }
}

int FusedStages::loop_of_output(std::size_t o) const {
  return at(root(p_.outputs()[o].value)).known;
}

// A conversion of an operand is computed again rather than kept: keeping operand and result would
// take registers.
bool FusedStages::repeats(int v) const {
  return !p_.is_input(v) && op(v).primitive == &convert_element_type_p &&
         p_.is_input(root(op(v).operands[0])) &&
         itemsize(p_.dtype(op(v).operands[0])) <= itemsize(p_.dtype(v));
}

void FusedStages::need(int v, int loop, std::vector<bool>& seen) {
  if (seen[static_cast<std::size_t>(v)]) return;
  seen[static_cast<std::size_t>(v)] = true;
  Value& value = at(v);
  FusedLoop& made = plan_[static_cast<std::size_t>(loop)];
  if (value.kind != FusedKind::full && value.kind != FusedKind::col) return;
  const bool full = value.kind == FusedKind::full;
  if (p_.is_input(v)) {
    const bool loaded = keeps_ && full && value.first >= 0;
    if (loaded && value.first < loop) value.kept = true;
    if (!loaded) made.inputs.push_back(v);
    if (!loaded) value.first = loop;
    value.last = loop;
    made.packs.push_back(v);
    return;
  }
  value.last = loop;
  if (keeps_ && full && value.first >= 0 && value.first < loop && !repeats(v)) {
    value.kept = true;
    made.kept.push_back(v);
    return;
  }
  for (int x : op(v).operands) need(root(x), loop, seen);
  if (value.first < 0) value.first = loop;
  made.ops.push_back(v);
}

void FusedStages::plan(bool keeps) {
  keeps_ = keeps;
  plan_.assign(static_cast<std::size_t>(loops_), {});
  for (Value& value : values_) {
    value.first = value.last = -1;
    value.kept = false;
  }
  for (std::size_t o = 0; o < p_.outputs().size(); ++o) {
    if (p_.kind(p_.outputs()[o].value) != FusedKind::full) continue;
    plan_[static_cast<std::size_t>(keeps ? loop_of_output(o) : loops_ - 1)].stores.push_back(
        static_cast<int>(o));
  }
  for (int l = 0; l < loops_; ++l) {
    FusedLoop& made = plan_[static_cast<std::size_t>(l)];
    std::vector<bool> seen(values_.size(), false);
    for (int v : used_) {
      if (!is_reduction(v) || at(v).known != l + 1) continue;
      made.reductions.push_back(v);
      need(root(op(v).operands[0]), l, seen);
    }
    for (const int o : made.stores)
      need(root(p_.outputs()[static_cast<std::size_t>(o)].value), l, seen);
    for (std::vector<int>* list : {&made.inputs, &made.packs, &made.kept, &made.ops})
      std::sort(list->begin(), list->end());
  }
}

// If values are kept, a loop stores the results of its own maps, and each full operand is loaded
// once, by the first loop that reads it; else the last loop stores all results. A value of rows is
// read before the first loop, and stored after the last. Keys are read until all their draws are
// made.
void FusedStages::find_overwrites() {
  for (std::size_t o = 0; o < p_.outputs().size(); ++o) {
    const FusedProgram::Output& output = p_.outputs()[o];
    const FusedKind wanted = p_.kind(output.value);
    const int stored = wanted == FusedKind::full ? loop_of_output(o) : loops_;
    std::uint32_t operands = 0;
    int i = 0;
    for (int v = 0; v < p_.value_count(); ++v) {
      if (!p_.is_input(v)) continue;
      const FusedProgram::Input& input = p_.inputs()[static_cast<std::size_t>(p_.index(v))];
      if (input.literal) continue;
      if (i < 32 && input.repeat.count == 0 && kind(v) == wanted && at(v).first <= stored &&
          p_.dtype(v) != DType::prng_key && itemsize(p_.dtype(v)) == itemsize(output.type.dtype()))
        operands |= 1u << i;
      ++i;
    }
    overwrites_.push_back(operands);
  }
}

// Finds the most words that are kept at the end of any loop.
void FusedStages::count_words() {
  std::int64_t most = 0;
  for (int l = 0; l + 1 < loops_; ++l) {
    std::int64_t bytes = 0;
    for (int v : used_) {
      const Value& value = at(v);
      if (!value.kept || value.first > l || value.last <= l) continue;
      bytes += p_.is_input(v) ? itemsize(p_.dtype(v)) : std::max(4, itemsize(p_.dtype(v)));
    }
    most = std::max(most, bytes);
  }
  kept_words_ = (most + 3) / 4;
}

}  // namespace shmap::cuda
