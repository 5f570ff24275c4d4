#include "core/cpu/fused/lowered_op.h"

#include <algorithm>
#include <map>

namespace shmap::cpu {

namespace {

// What fold_chains does (lowered_op.h). A chain is followed from the reduction back to its
// operands.
class Folding {
 public:
  Folding(std::vector<LoweredOp>& ops, std::vector<LoweredValue>& values)
      : ops_(ops), values_(values), users_(values.size()), makers_(values.size(), -1) {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const auto op = static_cast<int>(i);
      if (ops_[i].result >= 0) makers_[static_cast<std::size_t>(ops_[i].result)] = op;
      for (int v : ops_[i].operands)
        if (v >= 0) users_[static_cast<std::size_t>(v)].push_back(op);
    }
  }

  void run() {
    const std::size_t count = ops_.size();  // copies are appended
    for (std::size_t i = 0; i < count; ++i)
      if (ops_[i].folds) fold(static_cast<int>(i));
  }

 private:
  LoweredOp& op(int i) { return ops_[static_cast<std::size_t>(i)]; }
  LoweredValue& value(int v) { return values_[static_cast<std::size_t>(v)]; }
  std::vector<int>& users(int v) { return users_[static_cast<std::size_t>(v)]; }
  int maker(int v) const { return makers_[static_cast<std::size_t>(v)]; }
  bool is_full(int v) { return v >= 0 && value(v).kind == FusedKind::full && !value(v).tiled; }
  bool is_given(int v) { return value(v).stage == kStageNever; }

  bool links(int i) {
    if (i < 0) return false;
    const LoweredOp& o = op(i);
    return o.step.code != ChainCode::none && !ends_chain(o.step.code) && o.fold < 0 &&
           o.kind == FusedKind::full && o.stage != kStagePrologue && value(o.result).result < 0;
  }
  bool is_used_once(int v) {
    const std::vector<int>& by = users(v);
    return std::all_of(by.begin(), by.end(), [&](int user) { return user == by.front(); });
  }
  // True if computing the value again is cheaper than keeping it: if it is a widened operand, or
  // the sum or difference of operands.
  bool is_cheap(int i) {
    const LoweredOp& o = op(i);
    const ChainCode code = o.step.code;
    if (code == ChainCode::widen) return is_given(o.operands[0]);
    if (code != ChainCode::add && code != ChainCode::sub) return false;
    return std::all_of(o.operands, o.operands + 2,
                       [&](int v) { return !is_full(v) || is_given(v); });
  }

  // Returns the operand that the chain passes on. Prefers one that can itself be an operation of
  // the chain.
  int chained(const LoweredOp& o) {
    const int a = o.operands[0], b = o.operands[1];
    if (!is_full(b) || a == b) return a;
    if (!is_full(a)) return b;
    return links(maker(b)) && is_used_once(b) && !(links(maker(a)) && is_used_once(a)) ? b : a;
  }

  void fold(int reduction) {
    std::vector<int> chain;  // last link first
    int v = op(reduction).operands[0];
    while (is_full(v) && links(maker(v)) && chain.size() < kMostChainOps) {
      const int i = maker(v);
      if (!is_used_once(v)) {
        if (is_cheap(i)) chain.push_back(copied(i, chain.empty() ? reduction : chain.back()));
        break;
      }
      chain.push_back(i);
      if (op(i).step.code == ChainCode::widen) break;
      v = chained(op(i));
    }
    if (chain.empty()) return;
    op(reduction).fold = reduction;
    for (std::size_t k = 0; k < chain.size(); ++k) {
      LoweredOp& o = op(chain[k]);
      o.fold = reduction;
      o.link = -static_cast<int>(k);
      o.stage = value(o.result).stage = op(reduction).stage;
    }
  }

  // A copy of op i for `user` alone, so that the original is made no earlier than its other users
  // need it.
  int copied(int i, int user) {
    const auto at = static_cast<int>(ops_.size());
    const int v = op(i).result, made = static_cast<int>(values_.size());
    values_.push_back(value(v));
    ops_.push_back(op(i));
    op(at).result = made;
    users_.push_back({user});
    makers_.push_back(at);
    for (int& operand : op(user).operands)
      if (operand == v) operand = made;
    for (int operand : op(at).operands)
      if (operand >= 0) users(operand).push_back(at);
    std::erase(users(v), user);
    // The original moves to the first stage that reads it, where that one computes full values, as
    // odd stages do.
    int stage = op(users(v).front()).stage;
    for (int other : users(v)) stage = std::min(stage, op(other).stage);
    if (stage % 2 == 1 && stage > op(i).stage) op(i).stage = value(v).stage = stage;
    return at;
  }

  std::vector<LoweredOp>& ops_;
  std::vector<LoweredValue>& values_;
  std::vector<std::vector<int>> users_;  // the ops that read each value; an op appears once for
                                         // each operand
  std::vector<int> makers_;              // index of the op; -1: an operand or a literal
};

}  // namespace

void fold_chains(std::vector<LoweredOp>& ops, std::vector<LoweredValue>& values) {
  Folding(ops, values).run();
}

void join_folded_chains(std::vector<LoweredOp>& ops) {
  std::map<int, std::vector<LoweredOp>> chains;
  std::vector<LoweredOp> joined;
  for (const LoweredOp& op : ops)
    if (op.fold >= 0 && !op.folds) chains[op.fold].push_back(op);
  if (chains.empty()) return;
  for (const LoweredOp& op : ops) {
    if (op.fold >= 0 && !op.folds) continue;
    if (op.fold >= 0) {
      std::vector<LoweredOp>& chain = chains[op.fold];
      std::sort(chain.begin(), chain.end(),
                [](const LoweredOp& a, const LoweredOp& b) { return a.link < b.link; });
      joined.insert(joined.end(), chain.begin(), chain.end());
    }
    joined.push_back(op);
  }
  ops = std::move(joined);
}

}  // namespace shmap::cpu
