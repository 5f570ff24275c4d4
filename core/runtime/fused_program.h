// FusedProgram: several elementwise operations, broadcasts and reductions of rows as one kernel
// call, so that intermediate values stay in the cache; and `fused`, the primitive that runs one.
//
// A program computes on a space of rows x cols elements. A value has one element for each element
// of the space (full), one per row, one per column, or one in all (scalar). An operand of a smaller
// kind is used as if it were broadcast, and one with fewer rows repeats them (Repeat). The arrays
// of the values are row-major and contiguous; only their number of elements matters: an array of
// shape (2, 3, 5) is full where rows x cols is 6 x 5, 2 x 15 or 1 x 30.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/ir/primitive.h"

namespace shmap {

enum class FusedKind : std::uint8_t { scalar, col, row, full };

// The kind of an elementwise result: the smallest kind that contains both operands' kinds.
constexpr FusedKind joint_kind(FusedKind a, FusedKind b) {
  if (a == b) return a;
  if (a == FusedKind::scalar) return b;
  if (b == FusedKind::scalar) return a;
  return FusedKind::full;
}

// A backend's compiled form of a program, made when the backend first runs it.
class FusedPlan {
 public:
  virtual ~FusedPlan() = default;
};

class FusedProgram {
 public:
  enum class OpKind : std::uint8_t {
    map,        // an elementwise primitive
    reduce,     // a reducing primitive, along each row: full -> row
    broadcast,  // the operand as a value of a larger kind, without arithmetic
    draw,       // random bits: from one scalar key, or from one key per row -> full
  };
  // A full operand that is part of a larger array: row r begins at element first + r * pitch. Only
  // for backends that support it (fuse_slices.h).
  struct Window {
    std::int64_t first = 0, pitch = 0;
    std::int64_t of = 0;  // elements of the array; 0: the operand is whole
  };
  // A full operand, or one of rows, that has fewer rows than the space: row r of the space reads
  // the operand's row r / every % count. An array of shape (2, 1, 5) in a space of (2, 3, 5) has
  // two rows, each of which serves three; one of shape (3, 5) has three, which serve again.
  struct Repeat {
    std::int64_t every = 1;
    std::int64_t count = 0;  // rows of the operand; 0: it has all rows
    friend bool operator==(const Repeat&, const Repeat&) = default;
  };
  struct Input {
    DType dtype;
    FusedKind kind;
    bool literal = false;    // scalar; part of the program, and not an operand of the call
    std::uint64_t bits = 0;  // of a literal: its bytes in memory order, first byte first
    Window window = {};
    Repeat repeat = {};
  };
  struct Op {
    OpKind op;
    const Primitive* primitive;            // null: broadcast
    std::shared_ptr<const Params> params;  // of a map or a draw; null: none
    std::vector<int> operands;             // values
    DType dtype;
    FusedKind kind;
  };
  struct Output {
    int value;         // its number; full or row
    ShapedArray type;  // with as many elements as its kind has, and without variance
  };

  FusedProgram(std::int64_t rows, std::int64_t cols) : rows_(rows), cols_(cols) {}
  ~FusedProgram();
  FusedProgram(const FusedProgram&) = delete;
  FusedProgram& operator=(const FusedProgram&) = delete;

  // The add functions append an input or an operation and return the number of its value: inputs
  // and operations' results are numbered together, in the order of these calls. TypeError where the
  // primitive does not take such operands, ValueError where the kinds don't fit.
  int add_input(DType dtype, FusedKind kind);
  // ValueError where the rows do not lie inside the array, or overlap.
  int add_window(DType dtype, const Window& window);
  // `kind`: full or row. ValueError where the space does not consist of whole repetitions.
  int add_repeated(DType dtype, FusedKind kind, const Repeat& repeat);
  int add_literal(DType dtype, const void* value);
  int add_map(const Primitive& primitive, std::vector<int> operands,
              std::shared_ptr<const Params> params = nullptr);
  int add_reduce(const Primitive& primitive, int operand);
  // `primitive`: random_bits. Its operands are scalars or have one element per row; its result, by
  // its own shape rule, must have rows x cols elements.
  int add_draw(const Primitive& primitive, std::vector<int> operands,
               std::shared_ptr<const Params> params);
  int add_broadcast(int operand, FusedKind to);
  // Appends a copy of another program's input, literals and windows included.
  int add_input_like(const Input& input);
  // Appends a copy of another program's operation. `op` has the numbers of this program's values as
  // its operands.
  int add_like(const Op& op);
  void add_output(int value, const ShapedArray& type);

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t size(FusedKind kind) const;  // elements
  int value_count() const { return static_cast<int>(values_.size()); }
  DType dtype(int value) const { return at(value).dtype; }
  FusedKind kind(int value) const { return at(value).kind; }
  // The input or operation that defines a value, and its index in inputs() or ops().
  bool is_input(int value) const { return at(value).input; }
  int index(int value) const { return at(value).index; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  int operand_count() const { return operands_; }  // the number of inputs that are not literals
  // The number of elements of the array that is an input's operand.
  std::int64_t operand_size(const Input& input) const;

  // "[64, 128] (a:f32 b:f32/row c:f32/col) d = sub a b; e = mul d c -> e"; literals are written
  // where they are used. "a:f32[/4%16]": operand a repeats, with every = 4 and count = 16.
  std::string text() const;
  const Cost& cost() const { return cost_; }

  // The plan of a backend. `make` makes it once, on the first thread that asks.
  template <class Make>
  const FusedPlan& plan(DeviceKind kind, Make make) const {
    std::atomic<const FusedPlan*>& slot = plans_[static_cast<int>(kind)];
    if (const FusedPlan* ready = slot.load(std::memory_order_acquire)) [[likely]]
      return *ready;
    std::unique_ptr<const FusedPlan> made = make(*this);
    const FusedPlan* expected = nullptr;
    if (slot.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
      return *made.release();
    return *expected;
  }

 private:
  struct Value {
    DType dtype;
    FusedKind kind;
    bool input;
    int index;
  };
  const Value& at(int value) const;
  int add_value(const Value& value);
  int add_operand(const Input& input);
  int add_op(Op op);
  void add_cost(const Op& op);

  std::int64_t rows_, cols_;
  int operands_ = 0;
  Cost cost_;
  std::vector<Input> inputs_;
  std::vector<Op> ops_;
  std::vector<Output> outputs_;
  std::vector<Value> values_;
  std::vector<int> op_values_;
  mutable std::atomic<const FusedPlan*> plans_[kDeviceKinds] = {};
};

// What a backend's kernel of `fused` can do; set when the backend registers the kernel.
struct FusedAbility {
  bool (*available)() = nullptr;  // on this machine; null: always
  bool reads_windows = false;     // operands that are windows of arrays (FusedProgram::Window)
};
void set_fused_ability(DeviceKind kind, const FusedAbility& ability);

// Whether the devices of a kind can run `fused` on this machine, and whether with parts of arrays
// as operands; the fusion passes ask.
bool can_run_fused(DeviceKind kind);
bool fused_reads_windows(DeviceKind kind);

// Operands: the program's inputs that are not literals, in order. Results: its outputs, bit for bit
// the values of the operations run one by one.
extern Primitive fused_p;

struct FusedParams : ParamsOf<FusedParams> {
  explicit FusedParams(std::shared_ptr<const FusedProgram> p) : program(std::move(p)) {}
  std::shared_ptr<const FusedProgram> program;
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
