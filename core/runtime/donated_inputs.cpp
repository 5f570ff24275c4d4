#include "core/runtime/donated_inputs.h"

#include <algorithm>
#include <functional>

#include "core/ir/node.h"

namespace shmap {
namespace {

bool is_unique(const Array& x) { return x.node()->refs.load(std::memory_order_acquire) == 1; }

}  // namespace

const std::vector<bool>& DonatedInputs::find(const std::vector<Array>& inputs,
                                             const std::vector<bool>& last,
                                             const OutputSets& sets) {
  donated_.assign(inputs.size(), false);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    donated_[i] = last[i] && is_unique(inputs[i]) &&
                  holds_all_references(stored_of(inputs[i])->blocks(), sets);
  return donated_;
}

bool DonatedInputs::holds_all_references(std::span<const Block> table, const OutputSets& sets) {
  held_.clear();
  for (const Block& b : table) {
    if (held_.empty() || held_.back().first != b.buffer.get())
      held_.emplace_back(b.buffer.get(), 0);
    ++held_.back().second;
  }
  const auto all_held = [&] {
    return std::ranges::all_of(held_, [&](const auto& held) {
      const auto& [buffer, entries] = held;
      return buffer->owned_by(entries) || (buffer->owned_by(entries + 1) && sets.own(buffer));
    });
  };
  if (all_held()) return true;
  // A buffer whose entries are not adjacent was asked for fewer references than the table holds.
  std::ranges::sort(held_, std::less<>(), [](const auto& held) { return held.first; });
  std::size_t last = 0;
  for (std::size_t k = 1; k < held_.size(); ++k) {
    if (held_[k].first == held_[last].first) {
      held_[last].second += held_[k].second;
    } else {
      held_[++last] = held_[k];
    }
  }
  if (last + 1 == held_.size()) return false;
  held_.resize(last + 1);
  return all_held();
}

}  // namespace shmap
