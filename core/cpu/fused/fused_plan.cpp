#include "core/cpu/fused/fused_plan.h"

#include <algorithm>
#include <utility>

#include "core/cpu/fused/bound_chains.h"
#include "core/cpu/fused/lower_program.h"
#include "core/cpu/fused/prefetch_plan.h"
#include "core/cpu/fused/tile_shape.h"
#include "core/cpu/fused/value_addresses.h"
#include "core/cpu/fused/wider_tiles.h"

namespace shmap::cpu {

namespace {

// Puts the operations of a lowered program in order, and makes steps of them.
class Planner {
 public:
  Planner(const FusedProgram& program, LoweredProgram lowered)
      : p_(program),
        list_(std::move(lowered.list)),
        values_(std::move(lowered.values)),
        operand_values_(std::move(lowered.operands)),
        ops_(std::move(lowered.ops)) {
    order();
    find_uses();
    write_results_late();
    find_uses();
    place_values(ops_, first_result(), &values_, &list_);
    emit();
    find_overwrites();
    plan_prefetch(list_, values_, operand_values_);
  }
  FusedStepList take() { return std::move(list_); }
  const FusedStepList& list() const { return list_; }

 private:
  LoweredValue& value(int v) { return values_[static_cast<std::size_t>(v)]; }
  // The base of the first result's address.
  int first_result() const { return kFusedOperands + static_cast<int>(operand_values_.size()); }

  void order() {
    std::stable_sort(ops_.begin(), ops_.end(),
                     [](const LoweredOp& a, const LoweredOp& b) { return a.stage < b.stage; });
    join_folded_chains(ops_);
    // A copy to a result directly follows the op that makes the value, while the value is in the
    // cache.
    for (std::size_t i = 1; i < ops_.size(); ++i) {
      if (ops_[i].to < 0) continue;
      for (std::size_t k = i;
           k > 0 && ops_[k - 1].stage == ops_[k].stage && ops_[k - 1].result != ops_[k].operands[0];
           --k) {
        std::swap(ops_[k - 1], ops_[k]);
      }
    }
  }

  void find_uses() {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const LoweredOp& op = ops_[i];
      if (op.result >= 0) value(op.result).made = static_cast<int>(i);
      for (int v : op.operands) {
        if (v < 0) continue;
        value(v).last_use = static_cast<int>(i);
        value(v).last_stage = op.stage;
      }
    }
  }

  // Moves the operations that only write a result, and the chains that end with one, behind the
  // others of their stage, so that the result may take the memory of operands that the others read.
  // Among those that are moved, one that is the last reader of an operand comes first.
  void write_results_late() {
    using Chain = std::vector<LoweredOp>;
    std::vector<LoweredOp> made;
    made.reserve(ops_.size());
    std::vector<Chain> late;
    const auto append_late = [&] {
      while (!late.empty()) {
        auto next = std::find_if(late.begin(), late.end(), [&](const Chain& chain) {
          return std::any_of(operand_values_.begin(), operand_values_.end(), [&](int v) {
            return value(v).kind == FusedKind::full && reads(chain, v) &&
                   std::count_if(late.begin(), late.end(),
                                 [&](const Chain& other) { return reads(other, v); }) == 1;
          });
        });
        if (next == late.end()) next = late.begin();
        made.insert(made.end(), next->begin(), next->end());
        late.erase(next);
      }
    };
    for (std::size_t i = 0, end = 0; i < ops_.size(); i = end) {
      end = chain_end(i);
      if (i > 0 && ops_[i].stage != ops_[i - 1].stage) append_late();
      const auto first = ops_.begin() + static_cast<std::ptrdiff_t>(i),
                 last = ops_.begin() + static_cast<std::ptrdiff_t>(end);
      if (only_writes(ops_[end - 1]))
        late.emplace_back(first, last);
      else
        made.insert(made.end(), first, last);
    }
    append_late();
    ops_ = std::move(made);
  }
  bool only_writes(const LoweredOp& op) {
    if (op.kind != FusedKind::full || op.stage == kStagePrologue) return false;
    return op.to >= 0 || (value(op.result).result >= 0 && value(op.result).last_use < 0);
  }
  static bool reads(const std::vector<LoweredOp>& ops, int v) {
    return std::any_of(ops.begin(), ops.end(), [&](const LoweredOp& op) {
      return std::find(op.operands, op.operands + 3, v) != op.operands + 3;
    });
  }

  FusedAddress address_of(int v, FusedKind use) {
    if (v < 0) return {};
    FusedAddress address = value(v).address;
    const FusedKind kind = value(v).kind;
    address.scalar =
        kind == FusedKind::scalar || (kind == FusedKind::row && use == FusedKind::full);
    return address;
  }

  // Consecutive operations of one dtype become one step if the next operation reads the value
  // between them, and no other step does. A chain keeps at most one value at a time for operations
  // after the next one. Returns the index past the last operation of the chain that begins at i.
  // The chain may end with a store past the caches or with the reduction of its values.
  std::size_t chain_end(std::size_t i) {
    const auto links = [&](const LoweredOp& op) {
      return op.step.code != ChainCode::none && op.kind == FusedKind::full &&
             op.stage != kStagePrologue;
    };
    std::size_t end = i + 1;
    if (ops_[i].fold >= 0) {
      while (!ops_[end - 1].folds) ++end;
      return end;
    }
    if (!links(ops_[i])) return end;
    int kept = -1;              // the value that is kept; -1: none
    std::size_t kept_from = 0;  // where the chain ends if it cannot contain all uses of `kept`
    for (int count = 1; end < ops_.size() && count < kMostChainOps; ++end, ++count) {
      const LoweredOp& op = ops_[end];
      const int before = ops_[end - 1].result, now = static_cast<int>(end);
      if (ends_chain(ops_[end - 1].step.code)) break;
      const bool stores = op.step.around && op.operands[0] == before && stores_by_chain();
      if (op.stage != ops_[i].stage || (!links(op) && !stores) || value(before).result >= 0 ||
          (op.operands[0] != before && op.operands[1] != before))
        break;
      if (value(before).last_use != now) {
        if (kept >= 0 || stores || ++count == kMostChainOps) break;
        kept = before;
        kept_from = end;
      } else if (kept >= 0 && value(kept).last_use == now) {
        kept = -1;
      }
      if (stores) return kept >= 0 ? kept_from : end + 1;
    }
    return kept >= 0 ? kept_from : end;
  }

  // Whether chains write past the caches themselves. In short rows that begin anywhere in a cache
  // line too large a part of the lines would be written in two pieces.
  bool stores_by_chain() const {
    constexpr std::int64_t line = 16, many_lines = 512;  // elements
    return list_.rows == 1 || list_.cols % line == 0 || list_.cols >= many_lines;
  }

  FusedStep chain_step(std::size_t begin, std::size_t end) {
    FusedStep step;
    step.kind = FusedStep::chain;
    step.chained = chain_kernel(value(ops_[begin].result).dtype);
    step.chain_begin = static_cast<std::int32_t>(list_.chain_ops.size());
    int v = -1;     // the value that the chain passes on
    int kept = -1;  // the value that the chain keeps
    for (std::size_t i = begin; i < end && ops_[i].to < 0; ++i) {
      const LoweredOp& op = ops_[i];
      step.by_row |= op.step.by_row;
      const FusedAddress first = address_of(op.operands[0], op.kind);
      if (v < 0) v = first.scalar ? op.operands[1] : op.operands[0];
      if (i == begin) {
        step.a = address_of(v, op.kind);
      } else if (value(v).last_use != static_cast<int>(i)) {
        list_.chain_ops.push_back({ChainCode::keep, ChainForm::self, {}});
        kept = v;
      }
      FusedChainOp link{op.step.code, ChainForm::self, {}};
      if (op.operands[1] >= 0 && op.operands[0] != op.operands[1]) {
        const bool leads = op.operands[0] == v;
        const bool reads_kept = op.operands[leads ? 1 : 0] == kept;
        if (!reads_kept) link.other = leads ? address_of(op.operands[1], op.kind) : first;
        link.form = reads_kept          ? (leads ? ChainForm::kept : ChainForm::kept_first)
                    : link.other.scalar ? (leads ? ChainForm::scalar : ChainForm::scalar_first)
                                        : (leads ? ChainForm::vector : ChainForm::vector_first);
      }
      list_.chain_ops.push_back(link);
      v = op.result;
    }
    step.chain_count = static_cast<std::int32_t>(list_.chain_ops.size()) - step.chain_begin;
    return step;
  }

  void emit() {
    int stage = 0;
    bool writes_rows = false;
    for (std::size_t i = 0, end = 0; i < ops_.size(); i = end) {
      end = chain_end(i);
      const LoweredOp& op = ops_[end - 1];
      FusedStep step = op.step;
      const FusedKind use = step.kind == FusedStep::reduce ? FusedKind::row : op.kind;
      step.a = address_of(op.operands[0], use);
      step.b = address_of(op.operands[1], use);
      step.c = address_of(op.operands[2], use);
      if (op.result >= 0) {
        step.out = value(op.result).address;
        writes_rows |= op.kind == FusedKind::row && value(op.result).result >= 0;
      } else {
        step.out = address_in_memory(list_, first_result() + op.to, op.kind, step.itemsize);
        writes_rows |= op.kind == FusedKind::row;
      }
      writes_rows |= step.kind == FusedStep::reduce;
      if (end - i > 1) {
        FusedStep chain = chain_step(i, op.folds ? end - 1 : end);
        chain.out = step.out;
        chain.around = step.around;
        if (op.folds) {
          chain.kind = FusedStep::reduce_chain;
          chain.folded = op.folds;
        }
        step = chain;
      }
      if (op.stage == kStagePrologue) {
        list_.prologue.push_back(step);
        const LoweredValue& x = value(op.result);
        list_.prologue_size.push_back(x.kind == FusedKind::scalar ? 1 : list_.cols);
        continue;
      }
      for (; stage <= op.stage; ++stage)
        list_.stages.push_back(static_cast<std::int32_t>(list_.steps.size()));
      list_.steps.push_back(step);
    }
    list_.stages.push_back(static_cast<std::int32_t>(list_.steps.size()));
    list_.split = !writes_rows && list_.blocks > 1 && list_.stages.size() <= 3;
    const std::int64_t tiles = list_.group_rows > 0
                                   ? list_.rows / list_.group_rows * list_.group_tiles
                                   : (list_.rows + list_.tile_rows - 1) / list_.tile_rows;
    list_.units = list_.split ? list_.rows * list_.blocks : tiles;
  }

  // A result may use the memory of an operand, since a kernel may overwrite an operand of the
  // result's width. Both must have the same elements in each tile and block, and the last read of
  // the operand must not come after the write of the result.
  void find_overwrites() {
    list_.overwrites.assign(p_.outputs().size(), 0);
    for (std::size_t k = 0; k < ops_.size(); ++k) {
      const LoweredOp& op = ops_[k];
      const int o = op.to >= 0 ? op.to : op.result >= 0 ? value(op.result).result : -1;
      if (o < 0) continue;
      const DType dtype = p_.outputs()[static_cast<std::size_t>(o)].type.dtype();
      for (std::size_t i = 0; i < operand_values_.size() && i < 32; ++i) {
        const LoweredValue& x = value(operand_values_[i]);
        const bool same_elements = x.kind == op.kind && !x.part &&
                                   (x.kind == FusedKind::full || x.kind == FusedKind::row) &&
                                   itemsize(x.dtype) == itemsize(dtype);
        if (same_elements && x.last_use <= static_cast<int>(k))
          list_.overwrites[static_cast<std::size_t>(o)] |= 1u << i;
      }
    }
  }

  const FusedProgram& p_;
  FusedStepList list_;
  std::vector<LoweredValue> values_;
  std::vector<int> operand_values_;
  std::vector<LoweredOp> ops_;
};

}  // namespace

FusedStepList make_fused_steps(const FusedProgram& program, std::int64_t around_bytes,
                               bool by_rows) {
  const auto plan = [&](std::int64_t tile_bytes) {
    return Planner(program, lower_program(program, around_bytes, by_rows, tile_bytes));
  };
  Planner usual = plan(kUsualTileBytes);
  const std::int64_t wider = by_rows ? 0 : wider_tile_bytes(usual.list());
  FusedStepList list = wider == 0 ? usual.take() : plan(wider).take();
  bind_constants(list);
  return list;
}

}  // namespace shmap::cpu
