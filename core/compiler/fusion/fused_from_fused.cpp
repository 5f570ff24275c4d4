#include "core/compiler/fusion/fused_from_fused.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/ir/node.h"
#include "core/runtime/fused_columns.h"

namespace shmap {

namespace {

constexpr int kNone = -1;

struct Source {
  std::shared_ptr<const FusedProgram> program;
  std::vector<Atom> in;  // its operands
};

std::optional<Source> source_of(const Eqn& e) {
  if (e.primitive == &fused_p) return Source{params_as<FusedParams>(*e.params).program, e.in};
  if (e.primitive == &fused_columns_p)
    return Source{params_as<FusedColumnsParams>(*e.params).program, e.in};
  if (fuse_role(e) != FuseRole::map) return std::nullopt;
  Source source{program_of_one(e, {1, e.out[0]->type.size()}), {}};
  for (const Atom& a : e.in)
    if (!a.is_literal()) source.in.push_back(a);
  return source;
}

// Appends operations of existing programs to a new program.
class FusedWriter {
 public:
  FusedWriter(std::int64_t rows, std::int64_t cols)
      : program_(std::make_shared<FusedProgram>(rows, cols)) {}

  // Appends the values of `from` for which wants(value) is true; the operands of a wanted value
  // must be wanted too. The operand `given` is replaced by `given_as`, a value of the new program.
  // Returns the number of each value of `from` in the new program.
  template <class Wants>
  std::vector<int> add(const Source& from, Wants wants, const Var* given = nullptr,
                       int given_as = kNone) {
    std::vector<int> numbers;
    std::size_t operand = 0;
    for (int v = 0; v < from.program->value_count(); ++v) {
      const auto at = static_cast<std::size_t>(from.program->index(v));
      int number = kNone;
      if (from.program->is_input(v)) {
        const FusedProgram::Input& input = from.program->inputs()[at];
        const Atom* const a = input.literal ? nullptr : &from.in[operand++];
        if (wants(v)) number = a && given && a->var() == given ? given_as : add_input(input, a);
      } else if (wants(v)) {
        FusedProgram::Op op = from.program->ops()[at];
        for (int& x : op.operands) x = numbers[static_cast<std::size_t>(x)];
        number = program_->add_like(op);
      }
      numbers.push_back(number);
    }
    return numbers;
  }
  void add_output(int value, const ShapedArray& type) { program_->add_output(value, type); }

  // Returns the equation of the new program, with the results and the source of `like`. It is
  // `fused_columns` if `like` is.
  Eqn finish(const Eqn& like) {
    Eqn made = like;
    made.in = std::move(in_);
    if (like.primitive == &fused_columns_p) {
      const auto& p = params_as<FusedColumnsParams>(*like.params);
      made.params = std::make_shared<FusedColumnsParams>(std::move(program_), p.reduction, p.type);
    } else {
      made.primitive = &fused_p;
      made.params = std::make_shared<FusedParams>(std::move(program_));
    }
    return made;
  }
  std::size_t operand_count() const { return in_.size(); }

 private:
  struct Operand {
    const Var* var;
    FusedKind kind;
    FusedProgram::Repeat repeat;
    int value;
  };

  int add_input(const FusedProgram::Input& input, const Atom* a) {
    if (!a) return program_->add_input_like(input);
    if (input.window.of > 0) {
      in_.push_back(*a);
      return program_->add_input_like(input);
    }
    for (const Operand& known : operands_)
      if (known.var == a->var() && known.kind == input.kind && known.repeat == input.repeat &&
          known.var)
        return known.value;
    in_.push_back(*a);
    operands_.push_back({a->var(), input.kind, input.repeat, program_->add_input_like(input)});
    return operands_.back().value;
  }

  std::shared_ptr<FusedProgram> program_;
  std::vector<Atom> in_;
  std::vector<Operand> operands_;  // operands that are not windows
};

// True if the program reads v only as a whole operand of kind `kind` that has all rows.
bool reads_as(const Source& source, const Var* v, FusedKind kind) {
  std::size_t operand = 0;
  for (const FusedProgram::Input& input : source.program->inputs()) {
    if (input.literal) continue;
    const Atom& a = source.in[operand++];
    if (a.var() == v && (input.kind != kind || input.window.of > 0 || input.repeat.count > 0))
      return false;
  }
  return true;
}

}  // namespace

bool fits_any_rows(const FusedProgram& program) {
  for (int v = 0; v < program.value_count(); ++v)
    if (program.kind(v) != FusedKind::full && program.kind(v) != FusedKind::scalar) return false;
  return std::none_of(program.inputs().begin(), program.inputs().end(),
                      [](const FusedProgram::Input& input) {
                        return input.window.of > 0 || input.repeat.count > 0;
                      });
}

std::shared_ptr<const FusedProgram> program_of_one(const Eqn& e, const FuseSpace& space) {
  auto program = std::make_shared<FusedProgram>(space.rows, space.cols);
  std::vector<int> operands;
  for (const Atom& a : e.in) {
    if (a.is_literal()) {
      const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
      operands.push_back(program->add_literal(literal.type.dtype(), literal.value));
    } else {
      operands.push_back(program->add_input(
          a.type().dtype(), fuse_operand_kind(e, FuseRole::map, FusedKind::full, a)));
    }
  }
  program->add_output(program->add_map(*e.primitive, std::move(operands), e.params),
                      e.out[0]->type);
  return program;
}

Eqn part_of_fused(const Eqn& fused, const std::function<bool(std::size_t)>& wants) {
  const Source source{params_as<FusedParams>(*fused.params).program, fused.in};
  const FusedProgram& whole = *source.program;
  std::vector<bool> needed(static_cast<std::size_t>(whole.value_count()), false);
  Eqn like = fused;
  like.out.clear();
  for (std::size_t o = 0; o < fused.out.size(); ++o) {
    if (!wants(o)) continue;
    needed[static_cast<std::size_t>(whole.outputs()[o].value)] = true;
    like.out.push_back(fused.out[o]);
  }
  for (int v = whole.value_count(); v-- > 0;) {
    if (!needed[static_cast<std::size_t>(v)] || whole.is_input(v)) continue;
    for (int x : whole.ops()[static_cast<std::size_t>(whole.index(v))].operands)
      needed[static_cast<std::size_t>(x)] = true;
  }
  FusedWriter writer(whole.rows(), whole.cols());
  const std::vector<int> numbers =
      writer.add(source, [&](int v) { return needed[static_cast<std::size_t>(v)]; });
  for (std::size_t o = 0; o < fused.out.size(); ++o)
    if (wants(o))
      writer.add_output(numbers[static_cast<std::size_t>(whole.outputs()[o].value)],
                        whole.outputs()[o].type);
  return writer.finish(like);
}

std::optional<Eqn> computed_inside(const Eqn& user, const Var* v, const Eqn& maker) {
  const std::optional<Source> outer = source_of(user), inner = source_of(maker);
  if (!outer || !inner || inner->program->outputs().size() != 1) return std::nullopt;
  const FusedProgram &of_user = *outer->program, &of_maker = *inner->program;
  const int made = of_maker.outputs()[0].value;
  if (!reads_as(*outer, v, of_maker.kind(made)) ||
      of_user.ops().size() + of_maker.ops().size() > std::size_t{kMostFusedOps})
    return std::nullopt;
  // A reduction of columns keeps its space.
  const bool as_maker = fits_any_rows(of_user) && user.primitive != &fused_columns_p;
  const FusedProgram& space = as_maker ? of_maker : of_user;
  if (as_maker || fits_any_rows(of_maker)) {
    if (of_user.size(FusedKind::full) != of_maker.size(FusedKind::full)) return std::nullopt;
  } else if (of_user.rows() != of_maker.rows() || of_user.cols() != of_maker.cols()) {
    return std::nullopt;
  }
  const auto all = [](int) { return true; };
  FusedWriter writer(space.rows(), space.cols());
  const std::vector<int> first = writer.add(*inner, all);
  const std::vector<int> numbers =
      writer.add(*outer, all, v, first[static_cast<std::size_t>(made)]);
  if (writer.operand_count() == 0 || writer.operand_count() > kMostFusedOperands)
    return std::nullopt;
  for (const FusedProgram::Output& output : of_user.outputs())
    writer.add_output(numbers[static_cast<std::size_t>(output.value)], output.type);
  return writer.finish(user);
}

}  // namespace shmap
