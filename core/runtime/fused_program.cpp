#include "core/runtime/fused_program.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "core/base/element_type.h"
#include "core/ir/planned_primitive.h"
#include "shmap/error.h"
#include "shmap/half.h"

namespace shmap {

namespace {

const Params& params_of(const FusedProgram::Op& op) { return op.params ? *op.params : no_params; }

const char* name_of(FusedKind kind) {
  static constexpr const char* kNames[] = {"scalar", "col", "row", "full"};
  return kNames[static_cast<int>(kind)];
}

std::string letter(int value) {
  std::string name;
  for (int n = value + 1; n > 0; n = (n - 1) / 26)
    name.insert(name.begin(), static_cast<char>('a' + (n - 1) % 26));
  return name;
}

template <class T>
T read(std::uint64_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

std::string literal_text(DType dtype, std::uint64_t bits) {
  if (dtype == DType::prng_key) return std::to_string(bits);
  return with_plain(dtype, [bits]<class T>() -> std::string {
    const T value = read<T>(bits);
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "True" : "False";
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else {
      double real = 0;
      if constexpr (sizeof(T) == 2)
        real = static_cast<float>(value);
      else
        real = value;
      std::string text = fmt::format("{:.9g}", real);
      if (text.find_first_of(".eni") == std::string::npos) text += ".0";
      return text;
    }
  });
}

void check_operands(const FusedProgram& program, Types in) {
  if (in.size() != static_cast<std::size_t>(program.operand_count())) {
    throw ValueError("fused: " + std::to_string(in.size()) + " operands were given, and " +
                     std::to_string(program.operand_count()) + " are wanted");
  }
  std::size_t next = 0;
  for (const FusedProgram::Input& input : program.inputs()) {
    if (input.literal) continue;
    const ShapedArray& t = in[next++];
    const std::int64_t wanted = program.operand_size(input);
    if (t.dtype() == input.dtype && t.size() == wanted) continue;
    throw ValueError("fused: operand " + std::to_string(next - 1) + " has type " + to_string(t) +
                     ", and " + std::to_string(wanted) + " elements of " + to_string(input.dtype) +
                     " are wanted");
  }
}

const FusedProgram& program_of(const Params& params) {
  return *params_as<FusedParams>(params).program;
}

void eval_fused(Types in, const Params& params, std::span<ShapedArray> out) {
  const FusedProgram& program = program_of(params);
  check_operands(program, in);
  for (std::size_t o = 0; o < out.size(); ++o) out[o] = program.outputs()[o].type;
}
int fused_results(Types, const Params& params) {
  return static_cast<int>(program_of(params).outputs().size());
}
Cost fused_cost(Types, const Params& params, Types) { return program_of(params).cost(); }
// The flops of the equations from which the program was made.
double fused_flops(Types, const Params& params, Types) {
  const FusedProgram& program = program_of(params);
  double flops = 0;
  for (const FusedProgram::Op& op : program.ops()) {
    if (op.op == FusedProgram::OpKind::broadcast) continue;
    if (op.op == FusedProgram::OpKind::draw) {
      const ShapedArray drawn({program.rows(), program.cols()}, op.dtype, false, AxisSet());
      flops += op.primitive->flops({}, params_of(op), {&drawn, 1});
      continue;
    }
    flops += static_cast<double>(
        program.size(op.op == FusedProgram::OpKind::reduce ? FusedKind::full : op.kind));
  }
  return flops;
}

}  // namespace

FusedProgram::~FusedProgram() {
  for (auto& plan : plans_) delete plan.load(std::memory_order_acquire);
}

const FusedProgram::Value& FusedProgram::at(int value) const {
  if (value < 0 || value >= value_count()) {
    throw ValueError("fused program: value " + std::to_string(value) + " of " +
                     std::to_string(value_count()) + " does not exist");
  }
  return values_[static_cast<std::size_t>(value)];
}

std::int64_t FusedProgram::size(FusedKind kind) const {
  switch (kind) {
    case FusedKind::scalar:
      return 1;
    case FusedKind::col:
      return cols_;
    case FusedKind::row:
      return rows_;
    default:
      return rows_ * cols_;
  }
}

std::int64_t FusedProgram::operand_size(const Input& input) const {
  if (input.window.of > 0) return input.window.of;
  if (input.repeat.count > 0)
    return input.repeat.count * (input.kind == FusedKind::full ? cols_ : 1);
  return size(input.kind);
}

int FusedProgram::add_value(const Value& value) {
  values_.push_back(value);
  return value_count() - 1;
}

void FusedProgram::add_cost(const Op& op) {
  if (op.op == OpKind::broadcast) return;
  const std::int64_t n = size(op.op == OpKind::reduce ? FusedKind::full : op.kind);
  double flops = 2 * static_cast<double>(n);  // loads and stores of values in the cache
  if ((op.op == OpKind::map || op.op == OpKind::draw) && op.primitive->cost) {
    std::vector<ShapedArray> types;
    for (int v : op.operands) types.emplace_back(Shape{n}, dtype(v), false, AxisSet());
    const ShapedArray out(Shape{n}, op.dtype, false, AxisSet());
    flops = op.primitive->cost(types, params_of(op), {&out, 1}).flops;
  }
  cost_.flops += flops;
}

int FusedProgram::add_op(Op op) {
  add_cost(op);
  const int value = add_value({op.dtype, op.kind, false, static_cast<int>(ops_.size())});
  ops_.push_back(std::move(op));
  op_values_.push_back(value);
  return value;
}

int FusedProgram::add_operand(const Input& input) {
  // Of a window the rows are read, and not the whole array.
  const std::int64_t read = input.window.of > 0 ? size(input.kind) : operand_size(input);
  inputs_.push_back(input);
  ++operands_;
  cost_.bytes += static_cast<double>(read * itemsize(input.dtype));
  return add_value({input.dtype, input.kind, true, static_cast<int>(inputs_.size()) - 1});
}

int FusedProgram::add_input(DType dtype, FusedKind kind) { return add_operand({dtype, kind}); }

int FusedProgram::add_repeated(DType dtype, FusedKind kind, const Repeat& repeat) {
  if (kind != FusedKind::full && kind != FusedKind::row) {
    throw ValueError(std::string("fused program: a repeated operand of kind ") + name_of(kind) +
                     ": wanted a full one or one of rows");
  }
  if (repeat.every < 1 || repeat.count < 1 || rows_ < 1 ||
      rows_ / repeat.every / repeat.count * repeat.count * repeat.every != rows_) {
    throw ValueError("fused program: " + std::to_string(rows_) + " rows do not consist of " +
                     std::to_string(repeat.count) + ", each " + std::to_string(repeat.every) +
                     " times");
  }
  return add_operand({.dtype = dtype, .kind = kind, .repeat = repeat});
}

int FusedProgram::add_window(DType dtype, const Window& window) {
  if (window.first < 0 || window.pitch < cols_ || rows_ < 1 ||
      window.first + (rows_ - 1) * window.pitch + cols_ > window.of) {
    throw ValueError("fused program: " + std::to_string(rows_) + " rows of " +
                     std::to_string(cols_) + ", " + std::to_string(window.pitch) +
                     " elements apart from element " + std::to_string(window.first) +
                     " on, do not lie in an array of " + std::to_string(window.of));
  }
  return add_operand({.dtype = dtype, .kind = FusedKind::full, .window = window});
}

int FusedProgram::add_literal(DType dtype, const void* value) {
  Input input{dtype, FusedKind::scalar, true};
  std::memcpy(&input.bits, value, static_cast<std::size_t>(itemsize(dtype)));
  inputs_.push_back(input);
  return add_value({dtype, FusedKind::scalar, true, static_cast<int>(inputs_.size()) - 1});
}

int FusedProgram::add_map(const Primitive& primitive, std::vector<int> operands,
                          std::shared_ptr<const Params> params) {
  std::vector<ShapedArray> types;
  FusedKind kind = FusedKind::scalar;
  for (int v : operands) {
    types.emplace_back(Shape(), dtype(v), false, AxisSet());
    kind = joint_kind(kind, this->kind(v));
  }
  ShapedArray result;
  primitive.abstract_eval(types, params ? *params : no_params, {&result, 1});
  return add_op(
      {OpKind::map, &primitive, std::move(params), std::move(operands), result.dtype(), kind});
}

int FusedProgram::add_reduce(const Primitive& primitive, int operand) {
  if (kind(operand) != FusedKind::full) {
    throw ValueError(std::string("fused program: ") + primitive.name + " of a value of kind " +
                     name_of(kind(operand)) + ": wanted a full one; broadcast it first");
  }
  return add_op({OpKind::reduce, &primitive, nullptr, {operand}, dtype(operand), FusedKind::row});
}

int FusedProgram::add_draw(const Primitive& primitive, std::vector<int> operands,
                           std::shared_ptr<const Params> params) {
  std::vector<ShapedArray> types;
  for (int v : operands) {
    const FusedKind k = kind(v);
    if (k != FusedKind::scalar && k != FusedKind::row) {
      throw ValueError(std::string("fused program: ") + primitive.name + " of an operand of kind " +
                       name_of(k) + ": wanted a scalar or one of rows");
    }
    types.emplace_back(k == FusedKind::scalar ? Shape() : Shape{rows_}, dtype(v), false, AxisSet());
  }
  ShapedArray result;
  primitive.abstract_eval(types, *params, {&result, 1});
  if (result.size() != size(FusedKind::full)) {
    throw ValueError(std::string("fused program: ") + primitive.name + " gives " +
                     to_string(result) + ", and " + std::to_string(size(FusedKind::full)) +
                     " elements are wanted");
  }
  return add_op({OpKind::draw, &primitive, std::move(params), std::move(operands), result.dtype(),
                 FusedKind::full});
}

int FusedProgram::add_broadcast(int operand, FusedKind to) {
  if (joint_kind(kind(operand), to) != to) {
    throw ValueError(std::string("fused program: a broadcast from kind ") + name_of(kind(operand)) +
                     " to " + name_of(to) + ": wanted a broadcast to a wider kind");
  }
  return add_op({OpKind::broadcast, nullptr, nullptr, {operand}, dtype(operand), to});
}

int FusedProgram::add_input_like(const Input& input) {
  if (input.literal) return add_literal(input.dtype, &input.bits);
  if (input.window.of > 0) return add_window(input.dtype, input.window);
  if (input.repeat.count > 0) return add_repeated(input.dtype, input.kind, input.repeat);
  return add_input(input.dtype, input.kind);
}

int FusedProgram::add_like(const Op& op) {
  switch (op.op) {
    case OpKind::map:
      return add_map(*op.primitive, op.operands, op.params);
    case OpKind::draw:
      return add_draw(*op.primitive, op.operands, op.params);
    case OpKind::reduce:
      return add_reduce(*op.primitive, op.operands[0]);
    case OpKind::broadcast:
      break;
  }
  return add_broadcast(op.operands[0], op.kind);
}

void FusedProgram::add_output(int value, const ShapedArray& type) {
  const FusedKind k = kind(value);
  if ((k != FusedKind::full && k != FusedKind::row) || is_input(value)) {
    throw ValueError("fused program: output " + std::to_string(value) + " is of kind " +
                     name_of(k) + (is_input(value) ? " and an input" : "") +
                     ": wanted a full or a row result of an operation");
  }
  if (type.dtype() != dtype(value) || type.size() != size(k)) {
    throw ValueError("fused program: output " + std::to_string(value) + " has type " +
                     to_string(type) + ", and " + std::to_string(size(k)) + " elements of " +
                     to_string(dtype(value)) + " are wanted");
  }
  cost_.bytes += static_cast<double>(type.nbytes());
  outputs_.push_back({value, type.with_axes(AxisSet())});
}

std::string FusedProgram::text() const {
  std::vector<std::string> names;
  int next = 0;
  for (int v = 0; v < value_count(); ++v) {
    const bool literal = is_input(v) && inputs_[static_cast<std::size_t>(index(v))].literal;
    names.push_back(literal
                        ? literal_text(dtype(v), inputs_[static_cast<std::size_t>(index(v))].bits)
                        : letter(next++));
  }
  const auto typed = [&](int v) {
    const FusedKind k = kind(v);
    return names[static_cast<std::size_t>(v)] + ":" + short_name(dtype(v)) +
           (k == FusedKind::full ? std::string() : std::string("/") + name_of(k));
  };
  std::string text = "[" + std::to_string(rows_) + "," + std::to_string(cols_) + "] (";
  bool first = true;
  for (int v = 0; v < value_count(); ++v) {
    if (!is_input(v) || inputs_[static_cast<std::size_t>(index(v))].literal) continue;
    text += (first ? "" : " ") + typed(v);
    const Window& window = inputs_[static_cast<std::size_t>(index(v))].window;
    if (window.of > 0)
      text += "[" + std::to_string(window.first) + "::" + std::to_string(window.pitch) + "]";
    const Repeat& repeat = inputs_[static_cast<std::size_t>(index(v))].repeat;
    if (repeat.count > 0)
      text += "[/" + std::to_string(repeat.every) + "%" + std::to_string(repeat.count) + "]";
    first = false;
  }
  text += ")";
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    text += (i ? "; " : " ") + typed(op_values_[i]) + " = " +
            (op.primitive ? op.primitive->name : "broadcast");
    if (op.op == OpKind::map || op.op == OpKind::draw) {
      const std::string params = to_string(params_of(op));
      if (!params.empty()) text += "[" + params + "]";
    }
    for (int v : op.operands) text += " " + names[static_cast<std::size_t>(v)];
  }
  text += " ->";
  for (const Output& o : outputs_) text += " " + names[static_cast<std::size_t>(o.value)];
  return text;
}

void FusedParams::visit(ParamVisitor& v) const { v.value("program", program->text()); }

static constinit FusedAbility abilities[kDeviceKinds] = {};

void set_fused_ability(DeviceKind kind, const FusedAbility& ability) {
  abilities[static_cast<int>(kind)] = ability;
}
bool can_run_fused(DeviceKind kind) {
  const auto available = abilities[static_cast<int>(kind)].available;
  return available == nullptr || available();
}
bool fused_reads_windows(DeviceKind kind) {
  return abilities[static_cast<int>(kind)].reads_windows && can_run_fused(kind);
}

constinit Primitive fused_p = [] {
  Primitive p = planned_primitive("fused");
  p.abstract_eval = eval_fused;
  p.result_count = fused_results;
  p.cost = fused_cost;
  p.flops = fused_flops;
  p.in_place = true;
  return p;
}();

void register_fused() { register_primitive(fused_p); }

}  // namespace shmap
