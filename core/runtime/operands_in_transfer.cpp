#include "core/runtime/operands_in_transfer.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/device/plan_memory.h"

namespace shmap {

OperandsInTransfer::~OperandsInTransfer() {
  for (OfCollective& h : held_) release(h);
}

void OperandsInTransfer::before(const PlanStep& step) {
  // A step that reads a collective's result waits for the collective.
  for (OfCollective& h : held_) {
    for (const int slot : step.in)
      if (std::find(h.results.begin(), h.results.end(), slot) != h.results.end()) release(h);
  }
}

void OperandsInTransfer::hold(const PlanStep& step, std::vector<Array>& operands,
                              std::span<StoredNode* const> results) {
  if (!step.eqn->primitive->moves_data()) return;
  // If a result shares memory with an operand (a permutation in one space), no transfer is under
  // way, and another owner would keep the result from being written in place.
  std::unordered_set<const Buffer*> read;
  for (const Array& x : operands)
    for (const Block& b : stored_of(x)->blocks()) read.insert(b.buffer.get());
  for (const StoredNode* node : results)
    for (const Block& b : node->blocks())
      if (read.count(b.buffer.get())) return;
  release(held_[next_]);
  if (capturing()) {
    held_[next_] = {{}, {}, step.out};
    for (const Buffer* buffer : read) held_[next_].on_tape.push_back(tape_index(*buffer));
  } else {
    held_[next_] = {std::move(operands), {}, step.out};
  }
  next_ = (next_ + 1) % held_.size();
}

void OperandsInTransfer::release(OfCollective& h) {
  for (const std::int64_t at : h.on_tape) keep_until_now(at);
  h = {};
}

}  // namespace shmap
