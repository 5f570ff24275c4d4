#include "core/cpu/fused/lower_program.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "core/cpu/fused/fused_raw.h"
#include "core/cpu/fused/tile_shape.h"
#include "core/cpu/fused/value_addresses.h"
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
  }
  LoweredProgram take() { return std::move(made_); }

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
    const int made = new_value(input.literal ? computed_dtype(input.dtype) : input.dtype,
                               input.kind, kStageNever);
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
      address = address_in_memory(list_, kFusedOperands + static_cast<int>(operand_values_.size()),
                                  input.kind, size);
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
    if (value(by).kind != FusedKind::scalar || value(by).stage != kStageNever ||
        at.base != kFusedConstants)
      return;
    const auto bits =
        static_cast<std::uint32_t>(list_.constants[static_cast<std::size_t>(at.offset / 8)]);
    if (bits == 0) return;
    const ChainDivisor divisor = op->step.dtype == DType::u32
                                     ? ChainDivisor::of_u32(bits)
                                     : ChainDivisor::of_i32(static_cast<std::int32_t>(bits));
    op->step.code = code;
    by = new_value(value(by).dtype, FusedKind::scalar, kStageNever);
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
    int stage = kStagePrologue;
    if (kind == FusedKind::row || kind == FusedKind::full) {
      stage = std::max(least, kind == FusedKind::row ? 0 : 1);
      for (int v : op.operands)
        if (v >= 0) stage = std::max(stage, value(v).stage);
      if ((stage % 2 == 0) != (kind == FusedKind::row)) ++stage;
    }
    if (tiled) stage = kStagePrologue;
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
    if (value(v).result < 0 && value(v).stage != kStageNever && !around) {
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
           (op.step.kind == FusedStep::expand_col && value(op.operands[0]).stage == kStageNever);
  }

  const FusedProgram& p_;
  std::int64_t around_;
  LoweredProgram made_;
  FusedStepList& list_ = made_.list;
  std::vector<LoweredValue>& values_ = made_.values;
  std::vector<int>& operand_values_ = made_.operands;
  std::vector<LoweredOp>& ops_ = made_.ops;
  std::vector<int> lowered_;  // indexed by the program's values
  std::map<std::pair<int, FusedKind>, int> expanded_;
  std::map<std::pair<int, int>, int> widened_;  // keys: the value, and the stage that uses it
  std::map<int, int> narrowed_;
  std::map<int, std::int32_t> repeats_;  // for operands whose rows repeat: the index in the list's
                                         // `repeats`
};

}  // namespace

LoweredProgram lower_program(const FusedProgram& program, std::int64_t around_bytes, bool by_rows,
                             std::int64_t tile_bytes) {
  return Lowering(program, around_bytes, by_rows, tile_bytes).take();
}

}  // namespace shmap::cpu
