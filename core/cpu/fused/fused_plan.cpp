#include "core/cpu/fused/fused_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "core/cpu/fused/bound_chains.h"
#include "core/cpu/fused/fused_raw.h"
#include "core/cpu/fused/lowered_op.h"
#include "core/cpu/fused/prefetch_plan.h"
#include "core/cpu/fused/tile_shape.h"
#include "core/cpu/fused/value_addresses.h"
#include "core/cpu/fused/wider_tiles.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/fused/chain_divisor.h"
#include "core/cpu/kernels/reduce/reduce_loops.h"
#include "core/ops/elementwise.h"

namespace shmap::cpu {

namespace {

// Rows shorter than this are not worth one kernel call for each row, and those shorter than
// kShortCopy not where a copy of one row for all rows of the tile makes it one call.
constexpr std::int64_t kShortRow = 48, kShortCopy = 256;
// Rows longer than this are reduced one at a time, in the order in which chains reduce.
constexpr std::int64_t kFoldedRow = short_row(DType::f32);
constexpr int kNever = kStageNever, kPrologue = kStagePrologue;

// Whether every NaN in the step's f32 result is an operand's NaN (unchanged or made quiet) or the
// processor's default NaN.
bool passes_nans_on(const FusedStep& step) {
  switch (step.kind) {
    case FusedStep::unary:
    case FusedStep::binary:
      return step.code != ChainCode::none;
    case FusedStep::reduce:
    case FusedStep::repeat_rows:
    case FusedStep::expand_row:
    case FusedStep::expand_col:
    case FusedStep::expand_one:
      return true;
    default:
      return false;
  }
}

class Lowering {
 public:
  Lowering(const FusedProgram& program, std::int64_t around, bool by_rows, std::int64_t tile_bytes)
      : p_(program), around_(around) {
    cut_into_tiles(p_, by_rows, tile_bytes, &list_);
    for (int v = 0; v < p_.value_count(); ++v) add_program_value(v);
    for (std::size_t o = 0; o < p_.outputs().size(); ++o) add_output(static_cast<int>(o));
    fold_chains(ops_, values_);
    read_one_row();
    order();
    find_uses();
    write_results_late();
    find_uses();
    place_values(ops_, kFusedOperands + next_operand_, &values_, &list_);
    emit();
    find_overwrites();
    plan_prefetch(list_, values_, operand_values_);
  }
  FusedStepList take() { return std::move(list_); }
  const FusedStepList& list() const { return list_; }

 private:
  LoweredValue& value(int v) { return values_[static_cast<std::size_t>(v)]; }

  int new_value(DType dtype, FusedKind kind, int stage) {
    values_.push_back({});
    values_.back().dtype = dtype;
    values_.back().kind = kind;
    values_.back().stage = stage;
    return static_cast<int>(values_.size()) - 1;
  }

  // Returns the f32 form of a bf16 value for an operation of this stage; returns other values as
  // they are. If several stages read a value, each widens it again, so that no row of f32 is kept.
  int wide(int v, int stage) {
    if (v < 0 || value(v).dtype != DType::bf16) return v;
    if (value(v).kind != FusedKind::full) stage = 0;
    const auto known = widened_.find({v, stage});
    if (known != widened_.end()) return known->second;
    LoweredOp made;
    made.step = widen_step();
    made.operands[0] = v;
    const int wide = add_op(made, DType::f32, value(v).kind, false, stage);
    value(wide).has_bf16_nans = true;
    return widened_[{v, stage}] = wide;
  }
  // The bf16 form of a value that is held as f32.
  int narrow(int v) {
    if (value(v).dtype == DType::bf16) return v;
    const auto known = narrowed_.find(v);
    if (known != narrowed_.end()) return known->second;
    LoweredOp made;
    made.step = narrow_step();
    made.operands[0] = v;
    return narrowed_[v] = add_op(made, DType::bf16, value(v).kind);
  }
  int rounded(int v) {
    LoweredOp made;
    made.step = round_step(value(v).has_bf16_nans ? value(v).made_by : ChainCode::none);
    made.operands[0] = v;
    const int rounded = add_op(made, DType::f32, value(v).kind);
    value(rounded).has_bf16_nans = true;
    return rounded;
  }

  // The lowered form of the program's value v; the form of a broadcast is that of its operand.
  int lowered(int v) const { return lowered_[static_cast<std::size_t>(v)]; }

  void add_program_value(int v) {
    if (p_.is_input(v)) return add_input(v);
    const FusedProgram::Op& op = p_.ops()[static_cast<std::size_t>(p_.index(v))];
    switch (op.op) {
      case FusedProgram::OpKind::broadcast:
        lowered_.push_back(lowered(op.operands[0]));
        break;
      case FusedProgram::OpKind::reduce: {
        LoweredOp made;
        made.step.kind = FusedStep::reduce;
        made.step.reducer = raw_reduction(*op.primitive, computed_dtype(op.dtype));
        if (list_.cols >= kFoldedRow && computed_dtype(op.dtype) == DType::f32)
          made.folds = raw_fold(*op.primitive);
        made.operands[0] = expanded(wide(lowered(op.operands[0]), 1), FusedKind::full);
        const int total = add_op(made, computed_dtype(op.dtype), FusedKind::row);
        lowered_.push_back(op.dtype == DType::bf16 ? rounded(total) : total);
        break;
      }
      case FusedProgram::OpKind::map:
        add_map(op);
        break;
      case FusedProgram::OpKind::draw:
        add_draw(op);
        break;
    }
  }

  void add_input(int v) {
    const FusedProgram::Input& input = p_.inputs()[static_cast<std::size_t>(p_.index(v))];
    const int made =
        new_value(input.literal ? computed_dtype(input.dtype) : input.dtype, input.kind, kNever);
    lowered_.push_back(made);
    FusedAddress& address = value(made).address;
    if (input.literal) {
      address.base = kFusedConstants;
      address.offset = static_cast<std::int64_t>(8 * list_.constants.size());
      list_.constants.push_back(input.bits);
      if (input.dtype == DType::bf16)
        cast_kernel(DType::bf16, DType::f32)(&input.bits, &list_.constants.back(), 1);
      value(made).has_bf16_nans =
          input.dtype == DType::bf16 ||
          (input.dtype == DType::f32 &&
           !std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(input.bits))));
    } else {
      const std::int64_t size = itemsize(input.dtype);
      address = address_in_memory(list_, kFusedOperands + next_operand_++, input.kind, size);
      if (input.window.of > 0) {
        address.offset = input.window.first * size;
        address.row_stride = address.tile_stride = input.window.pitch * size;
        value(made).part = true;
      }
      operand_values_.push_back(made);
      if (input.repeat.count > 0) lowered_.back() = add_repeated(made, input.repeat);
    }
  }

  // Returns the form in which operand v, whose rows repeat, is read: the operand itself, or a copy
  // where kernels would need rows that are not neighbours. The copy is made for each tile, or once
  // a call if all tiles have the same rows.
  int add_repeated(int v, const FusedProgram::Repeat& rows) {
    LoweredValue& x = value(v);
    const bool full = x.kind == FusedKind::full;
    const std::int64_t size = itemsize(x.dtype), pitch = full ? list_.cols * size : size;
    const bool long_rows = list_.cols >= kShortRow && x.dtype == computed_dtype(x.dtype);
    const bool moves =
        list_.tile_rows == 1 || (full && list_.group_rows > 0 && (rows.every == 1 || long_rows));
    x.part = true;
    x.address.row_stride = 0;
    x.one_row = moves && list_.tile_rows > 1 && rows.every > 1;
    if (x.one_row) x.address.tile_stride = 0;
    list_.repeats.push_back({x.address.base, rows, pitch, moves});
    repeats_[v] = static_cast<std::int32_t>(list_.repeats.size()) - 1;
    return moves ? v : rows_of(v, full && rows.every == 1 && list_.tile_rows % rows.count == 0);
  }
  // A copy of the rows of the tile of operand v, whose rows repeat.
  int rows_of(int v, bool tiled = false) {
    LoweredOp made;
    made.step.kind = FusedStep::repeat_rows;
    made.step.repeated = repeats_.at(v);
    made.operands[0] = v;
    return add_op(made, value(v).dtype, value(v).kind, tiled);
  }

  void add_map(const FusedProgram::Op& op) {
    const DType from = p_.dtype(op.operands[0]);
    const HalfUse half = half_use(*op.primitive, from, op.dtype);
    const auto used = [&](DType t) { return half.in_f32 ? computed_dtype(t) : t; };
    LoweredOp made;
    FusedKind kind = FusedKind::scalar;
    int stage = 1;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      made.operands[i] = lowered(op.operands[i]);
      kind = joint_kind(kind, value(made.operands[i]).kind);
      stage = std::max(stage, value(made.operands[i]).stage);
    }
    stage += stage % 2 == 0;
    if (half.converts && from == DType::bf16 && computed_dtype(op.dtype) == DType::f32)
      return lowered_.push_back(made.operands[0]);  // each use widens the value
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      int& v = made.operands[i];
      v = !half.in_f32 && p_.dtype(op.operands[i]) == DType::bf16 ? narrow(v) : wide(v, stage);
    }
    if (half.converts && from == DType::f32 && op.dtype == DType::bf16)
      return lowered_.push_back(rounded(made.operands[0]));
    made.step = raw_step(*op.primitive, used(from), used(op.dtype));
    // A kernel's result has the extent of its operands; clamp's has that of its second operand.
    const int longest = made.step.kind == FusedStep::clamp ? 1 : 0;
    int& chief = made.operands[longest];
    if (kind != op.kind || (longest == 1 && value(chief).kind != op.kind))
      chief = expanded(chief, op.kind);
    const bool call_each_row = list_.tile_rows > 1 && op.kind == FusedKind::full;
    for (int& v : made.operands) {
      if (v < 0 || !call_each_row) continue;
      const FusedKind k = value(v).kind;
      if (value(v).tiled || (k != FusedKind::row && k != FusedKind::col)) continue;
      if (list_.cols < kShortRow)
        v = expanded(v, FusedKind::full);
      else
        made.step.by_row = true;
    }
    divide_by_constant(*op.primitive, &made);
    const int result = made.step.kind == FusedStep::clamp && made.step.dtype == DType::f32 &&
                               chain_kernel(DType::f32)
                           ? add_clamp_of_chain(made)
                           : add_op(made, used(op.dtype), op.kind);
    if (op.primitive == &rsqrt_p)  // a root and a division
      value(result).has_bf16_nans = value(made.operands[0]).has_bf16_nans;
    const bool rounds = op.dtype == DType::bf16 && half.in_f32 && half.rounds;
    lowered_.push_back(rounds ? rounded(result) : result);
  }

  // Lets a division of 32-bit integers by a constant that is not 0, or its remainder, become an
  // operation of a chain.
  void divide_by_constant(const Primitive& primitive, LoweredOp* op) {
    const ChainCode code = division_code(primitive, op->step.dtype);
    if (code == ChainCode::none) return;
    int& by = op->operands[1];
    const FusedAddress& at = value(by).address;
    if (value(by).kind != FusedKind::scalar || value(by).stage != kNever ||
        at.base != kFusedConstants)
      return;
    const auto bits =
        static_cast<std::uint32_t>(list_.constants[static_cast<std::size_t>(at.offset / 8)]);
    if (bits == 0) return;
    const ChainDivisor divisor = op->step.dtype == DType::u32
                                     ? ChainDivisor::of_u32(bits)
                                     : ChainDivisor::of_i32(static_cast<std::int32_t>(bits));
    op->step.code = code;
    by = new_value(value(by).dtype, FusedKind::scalar, kNever);
    value(by).address.base = kFusedConstants;
    value(by).address.offset = static_cast<std::int64_t>(8 * list_.constants.size());
    for (const std::uint64_t part : std::bit_cast<std::array<std::uint64_t, 2>>(divisor))
      list_.constants.push_back(part);
  }

  // A clamp as the two operations of a chain that together give the same bits.
  int add_clamp_of_chain(const LoweredOp& clamp) {
    const auto part = [&](const Primitive& primitive, int a, int b) {
      LoweredOp made;
      made.step = raw_step(primitive, DType::f32, DType::f32);
      made.step.by_row = clamp.step.by_row;
      made.operands[0] = a, made.operands[1] = b;
      return add_op(made, DType::f32, joint_kind(value(a).kind, value(b).kind));
    };
    const int raised = part(max_p, clamp.operands[0], clamp.operands[1]);
    return part(min_p, raised, clamp.operands[2]);
  }

  void add_draw(const FusedProgram::Op& op) {
    const auto& params = params_as<RandomBitsParams>(*op.params);
    LoweredOp made;
    made.step.kind = FusedStep::draw;
    made.step.dtype = op.dtype;
    made.step.itemsize = static_cast<std::int8_t>(itemsize(op.dtype));
    made.step.drawn = static_cast<std::int32_t>(list_.draws.size());
    for (std::size_t i = 0; i < op.operands.size(); ++i) made.operands[i] = lowered(op.operands[i]);
    list_.draws.push_back({RandomBlock(params.shape, params.of), op.dtype,
                           value(made.operands[0]).kind == FusedKind::row, op.operands.size() > 1});
    lowered_.push_back(add_op(made, op.dtype, FusedKind::full));
  }

  // The value expanded to elements of `kind`. Where tiles have several rows, a value of columns is
  // repeated for one tile, once a call, and serves every tile.
  int expanded(int v, FusedKind kind) {
    if (value(v).kind == kind && !value(v).one_row) return v;
    const auto known = expanded_.find({v, kind});
    if (known != expanded_.end()) return known->second;
    const bool tiled =
        value(v).kind == FusedKind::col && kind == FusedKind::full && list_.tile_rows > 1;
    return expanded_[{v, kind}] = add_expand(v, kind, tiled);
  }

  int add_expand(int v, FusedKind kind, bool tiled) {
    const FusedKind from = value(v).kind;
    LoweredOp made;
    made.operands[0] = v;
    made.step.itemsize = static_cast<std::int8_t>(itemsize(value(v).dtype));
    const bool of_cols = from == FusedKind::col || value(v).one_row;
    made.step.kind = from == FusedKind::row ? FusedStep::expand_row
                     : of_cols              ? FusedStep::expand_col
                                            : FusedStep::expand_one;
    if (from == FusedKind::row) made.step.expand = expand_kernel(made.step.itemsize);
    return add_op(made, value(v).dtype, kind, tiled);
  }

  // Adds the op to stage `least` or, where its operands are made later, to a stage after them.
  int add_op(LoweredOp op, DType dtype, FusedKind kind, bool tiled = false, int least = 0) {
    int stage = kPrologue;
    if (kind == FusedKind::row || kind == FusedKind::full) {
      stage = std::max(least, kind == FusedKind::row ? 0 : 1);
      for (int v : op.operands)
        if (v >= 0) stage = std::max(stage, value(v).stage);
      if ((stage % 2 == 0) != (kind == FusedKind::row)) ++stage;
    }
    if (tiled) stage = kPrologue;
    op.stage = stage;
    op.kind = kind;
    op.result = new_value(dtype, kind, stage);
    value(op.result).tiled = tiled;
    value(op.result).made_by = op.step.code;
    value(op.result).has_bf16_nans =
        passes_nans_on(op.step) && std::all_of(op.operands, op.operands + 3, [&](int v) {
          return v < 0 || value(v).has_bf16_nans;
        });
    ops_.push_back(op);
    return op.result;
  }

  void add_output(int o) {
    const FusedProgram::Output& output = p_.outputs()[static_cast<std::size_t>(o)];
    const FusedKind kind = p_.kind(output.value);
    int v = lowered(output.value);
    if (output.type.dtype() == DType::bf16)
      v = narrow(v);
    else
      v = wide(v, std::max(value(v).stage, 1));
    if (value(v).kind != kind || value(v).one_row) v = add_expand(v, kind, false);
    const bool around = kind == FusedKind::full && output.type.nbytes() >= around_;
    if (value(v).result < 0 && value(v).stage != kNever && !around) {
      value(v).result = o;
      return;
    }
    LoweredOp store;
    store.step.kind = FusedStep::store;
    store.step.around = around;
    store.step.itemsize = static_cast<std::int8_t>(itemsize(value(v).dtype));
    store.operands[0] = v;
    store.to = o;
    store.kind = kind;
    store.stage = std::max(value(v).stage, kind == FusedKind::full ? 1 : 0);
    ops_.push_back(store);
    list_.stores_around |= around;
  }

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
  // Operands of which the tile reads one row again and again: a folded chain reads them row by row,
  // as it reads all its operands; other operations do so where rows are long, and else read a copy
  // for all rows of the tile.
  void read_one_row() {
    for (std::size_t i = 0, end = ops_.size(); i < end; ++i) {
      if (ops_[i].fold >= 0 || copies_operand(ops_[i])) continue;
      for (int k = 0; k < 3; ++k) {
        const int v = ops_[i].operands[k];
        if (v < 0 || !value(v).one_row) continue;
        if (list_.cols < kShortCopy)
          ops_[i].operands[k] = expanded(v, FusedKind::full);
        else
          ops_[i].step.by_row = true;
      }
    }
    // Copies read operands alone, and come before the operations that read them.
    std::stable_partition(ops_.begin(), ops_.end(),
                          [&](const LoweredOp& op) { return copies_operand(op); });
  }
  bool copies_operand(const LoweredOp& op) {
    return op.step.kind == FusedStep::repeat_rows ||
           (op.step.kind == FusedStep::expand_col && value(op.operands[0]).stage == kNever);
  }
  bool only_writes(const LoweredOp& op) {
    if (op.kind != FusedKind::full || op.stage == kPrologue) return false;
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
      return op.step.code != ChainCode::none && op.kind == FusedKind::full && op.stage != kPrologue;
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
        step.out = address_in_memory(list_, kFusedOperands + next_operand_ + op.to, op.kind,
                                     step.itemsize);
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
      if (op.stage == kPrologue) {
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
  std::int64_t around_;
  FusedStepList list_;
  std::vector<LoweredValue> values_;
  std::vector<int> lowered_;  // indexed by the program's values
  std::vector<int> operand_values_;
  std::vector<LoweredOp> ops_;
  std::map<std::pair<int, FusedKind>, int> expanded_;
  std::map<std::pair<int, int>, int> widened_;  // keys: the value, and the stage that uses it
  std::map<int, int> narrowed_;
  std::map<int, std::int32_t> repeats_;  // for operands whose rows repeat: the index in the list's
                                         // `repeats`
  int next_operand_ = 0;
};

}  // namespace

FusedStepList make_fused_steps(const FusedProgram& program, std::int64_t around_bytes,
                               bool by_rows) {
  Lowering lowering(program, around_bytes, by_rows, kUsualTileBytes);
  const std::int64_t wider = by_rows ? 0 : wider_tile_bytes(lowering.list());
  FusedStepList list =
      wider == 0 ? lowering.take() : Lowering(program, around_bytes, by_rows, wider).take();
  bind_constants(list);
  return list;
}

}  // namespace shmap::cpu
