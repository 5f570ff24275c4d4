#include "cuda/fused/fused_source.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "cuda/fused/fused_expression.h"
#include "cuda/fused/fused_stages.h"

namespace shmap::cuda {

namespace {

constexpr int kVectorBytes = 16;
constexpr int kCellThreads = 256;            // threads of a block, in the forms flat and cells
constexpr int kRowThreads = 128;             // threads of a block in which several rows are reduced
constexpr std::int64_t kShortRow = 24 * 32;  // elements; up to here the order is that of a
                                             // reduction alone
constexpr std::int64_t kShortWords = 96;     // 4-byte words that one thread keeps of a short row in
                                             // registers
constexpr std::int64_t kMostWords = 32;      // 4-byte words that a thread keeps of a longer row
constexpr std::int64_t kMostIntColumns = std::int64_t{1} << 30;
constexpr std::int64_t kMostWork = 512;  // operations that are unrolled for one thread

std::string number(std::int64_t n) { return std::to_string(n); }

class Writer {
 public:
  Writer(const FusedProgram& program, bool aligned)
      : p_(program),
        stages_(program),
        aligned_(aligned),
        column_(program.cols() <= kMostIntColumns ? "int" : "long") {
    choose_form();
    choose_vector();
    if (made_.form == FusedForm::rows) choose_lanes();
    count_work();
    find_requirements();
    write();
  }
  FusedSource take() { return std::move(made_); }

 private:
  using Kind = FusedKind;

  // --- the form

  void choose_form() {
    bool rows = stages_.loops() > 0 && stages_.has_reductions(), cells = false;
    for (const FusedProgram::Output& o : p_.outputs()) rows |= p_.kind(o.value) == Kind::row;
    for (int v : stages_.used())
      cells |= stages_.kind(v) == Kind::row || stages_.kind(v) == Kind::col || repeats(v);
    made_.form = rows ? FusedForm::rows : cells ? FusedForm::cells : FusedForm::flat;
  }

  void choose_vector() {
    int widest = 0;
    for (int v : stages_.used())
      if (p_.is_input(v) && stages_.kind(v) == Kind::full) widest = std::max(widest, size_of(v));
    for (const FusedProgram::Output& o : p_.outputs())
      if (p_.kind(o.value) == Kind::full) widest = std::max(widest, itemsize(o.type.dtype()));
    made_.vector = aligned_ && widest > 0 ? kVectorBytes / widest : 1;
    if (made_.form == FusedForm::flat) return;
    while (p_.cols() % made_.vector != 0) made_.vector /= 2;
  }

  // Up to a warp of threads shares a short row, which is reduced in the order of `reduce` alone
  // (cuda/kernels/reduce/reduce_kernel.h): there a thread takes 16 bytes of neighbours at a time.
  // Longer rows get as many threads as are needed to keep the values in registers few.
  void choose_lanes() {
    const int summed = stages_.summed_bytes();
    made_.lanes = 1;
    if (stages_.loops() == 0) {
      group_ = made_.vector;
    } else {
      const int whole = made_.vector;
      group_ = summed > 0 ? kVectorBytes / summed : whole;
      made_.vector = std::min(whole, group_);
      while (made_.lanes < 32 && made_.lanes < groups()) made_.lanes *= 2;
      const bool is_short = p_.cols() <= kShortRow;
      if (!is_short) {
        group_ = made_.vector = whole;
        made_.lanes = 64;
        while (made_.lanes < 1024 && made_.lanes < groups() &&
               (steps() > 4 || !resident(kMostWords / 2) || elements() * stages_.ops() > kMostWork))
          made_.lanes *= 2;
      }
      made_.resident = resident(is_short ? kShortWords : kMostWords) &&
                       (stages_.kept_words() == 0 || elements() * stages_.ops() <= 4 * kMostWork);
    }
    // A single loop keeps no values, and need not be unrolled.
    streams_ = stages_.kept_words() == 0 || !made_.resident;
    made_.threads = made_.lanes > 32 ? made_.lanes : kRowThreads;
    rows_a_block_ = made_.threads / made_.lanes;
    stages_.plan(made_.resident);
  }
  // The number of groups in a row, of groups that a thread takes, and of elements that it takes.
  std::int64_t groups() const { return (p_.cols() + group_ - 1) / group_; }
  std::int64_t steps() const { return (groups() + made_.lanes - 1) / made_.lanes; }
  std::int64_t elements() const { return steps() * group_; }
  bool resident(std::int64_t words) const { return elements() * stages_.kept_words() <= words; }

  void count_work() {
    if (made_.form == FusedForm::rows) {
      made_.count = p_.rows();
      made_.blocks = (p_.rows() + rows_a_block_ - 1) / rows_a_block_;
      return;
    }
    made_.count = p_.rows() * p_.cols();
    made_.threads = kCellThreads;
    const std::int64_t vectors = (made_.count + made_.vector - 1) / made_.vector;
    made_.blocks = (vectors + kCellThreads - 1) / kCellThreads;
    // Indices of 32 bits suffice, including the last step of a grid-stride loop.
    index_ = made_.count < (std::int64_t{1} << 31) ? "unsigned int" : "long";
    stages_.plan(true);
  }

  void find_requirements() {
    const auto need = [&](Kind kind, DType dtype) {
      const bool moved = kind == Kind::full || kind == Kind::col;
      return std::min(kVectorBytes, itemsize(dtype) * (moved ? made_.vector : 1));
    };
    for (int v = 0; v < p_.value_count(); ++v) {
      if (!p_.is_input(v) || is_literal(v)) continue;
      made_.scalars.push_back(stages_.kind(v) == Kind::scalar);
      made_.operand_alignment.push_back(need(stages_.kind(v), p_.dtype(v)));
    }
    for (const FusedProgram::Output& o : p_.outputs())
      made_.result_alignment.push_back(need(p_.kind(o.value), o.type.dtype()));
  }

  // --- what is written

  int size_of(int v) const { return itemsize(p_.dtype(v)); }
  const char* type(int v) const { return storage_type(p_.dtype(v)); }
  bool is_literal(int v) const {
    return p_.is_input(v) && p_.inputs()[static_cast<std::size_t>(p_.index(v))].literal;
  }
  const FusedProgram::Op& op_of(int v) const {
    return p_.ops()[static_cast<std::size_t>(p_.index(v))];
  }
  bool repeats(int v) const {
    return p_.is_input(v) && p_.inputs()[static_cast<std::size_t>(p_.index(v))].repeat.count > 0;
  }
  // The row of operand v that `row` reads.
  std::string row_of(int v) const {
    if (!repeats(v)) return "row";
    const FusedProgram::Repeat& rows = p_.inputs()[static_cast<std::size_t>(p_.index(v))].repeat;
    std::string text = "row";
    if (rows.every > 1) text += " / " + number(rows.every);
    if (rows.every * rows.count < p_.rows()) text += " % " + number(rows.count);
    return text;
  }
  static std::string name(const char* prefix, int v) { return prefix + number(v); }
  std::string pack(int v) const { return std::string("Pack<") + type(v) + ", kVector>"; }

  void line(const std::string& text) {
    if (!text.empty() && text[0] != '#') made_.text.append(static_cast<std::size_t>(indent_), ' ');
    made_.text += text + "\n";
  }
  void open(const std::string& text) {
    line(text + " {");
    indent_ += 2;
  }
  void close(const char* end = "") {
    indent_ -= 2;
    line(std::string("}") + end);
  }

  void write() {
    line("#include \"cuda/kernels/embedded/fused.h\"");
    if (has_keys()) line("#include \"cuda/kernels/embedded/threefry_hash.h\"");
    line("");
    line("using namespace shmap::cuda;");
    line("");
    write_args();
    switch (made_.form) {
      case FusedForm::flat:
        write_flat();
        break;
      case FusedForm::cells:
        write_cells();
        break;
      case FusedForm::rows:
        write_rows();
        break;
    }
  }

  bool has_keys() const {
    for (int v = 0; v < p_.value_count(); ++v)
      if (p_.dtype(v) == DType::prng_key) return true;
    return false;
  }

  void write_args() {
    open("struct Args");
    line("long count;");
    for (int v = 0; v < p_.value_count(); ++v) {
      if (!p_.is_input(v) || is_literal(v)) continue;
      if (stages_.kind(v) == Kind::scalar)
        line(std::string("One<") + type(v) + "> " + name("in", v) + ";");
      else
        line(std::string("const ") + type(v) + "* " + name("in", v) + ";");
    }
    for (std::size_t o = 0; o < p_.outputs().size(); ++o) {
      line(std::string(storage_type(p_.outputs()[o].type.dtype())) + "* out" + std::to_string(o) +
           ";");
    }
    close(";");
    line("");
  }

  void open_kernel() {
    open("extern \"C\" __global__ void __launch_bounds__(" + number(made_.threads) + ") " +
         kFusedKernel + "(const Args args)");
    line("after_predecessor();");
  }

  // Defines a value that all elements of a scope share, or that one element has. `element`, for a
  // draw: the element's index among the elements of its key.
  void define(int v, const std::string& element = "") {
    std::string text = std::string("const ") + type(v) + " " + name("v", v) + " = ";
    if (is_literal(v)) {
      text +=
          literal_expression(p_.dtype(v), p_.inputs()[static_cast<std::size_t>(p_.index(v))].bits);
    } else if (p_.is_input(v)) {
      text += stages_.kind(v) == Kind::scalar ? "value_of(args." + name("in", v) + ")"
                                              : "args." + name("in", v) + "[" + row_of(v) + "]";
    } else {
      const FusedProgram::Op& op = op_of(v);
      std::vector<std::string> operands;
      for (int x : op.operands) operands.push_back(name("v", stages_.root(x)));
      text += stages_.is_draw(v) ? draw_expression(*op.params, operands, element, op.dtype)
                                 : map_expression(*op.primitive, op.params ? *op.params : no_params,
                                                  operands, p_.dtype(op.operands[0]), op.dtype);
    }
    line(text + ";");
  }
  void define_scalars() {
    for (int v : stages_.used())
      if (stages_.kind(v) == Kind::scalar) define(v);
  }
  // Defines the values of rows that become known just before loop `loop`.
  void define_rows(int loop) {
    for (int v : stages_.used())
      if (stages_.kind(v) == Kind::row && stages_.known(v) == loop && !stages_.is_reduction(v))
        define(v);
  }

  // Writes the code that loads, computes and stores one vector: at `index` of full operands and at
  // `col` of operands of columns. `rows`: in the form rows, keeps values for later loops.
  void write_vector(const FusedLoop& loop, const std::string& index, const std::string& col,
                    bool rows) {
    for (int v : loop.inputs) {
      if (stages_.kind(v) != Kind::col && stages_.kind(v) != Kind::full) continue;
      const std::string at = repeats(v) && stages_.kind(v) == Kind::full
                                 ? "(" + row_of(v) + ") * kCols + " + col
                             : stages_.kind(v) == Kind::full ? index
                                                             : col;
      const std::string from = "load<kVector>(args." + name("in", v) + " + " + at + ")";
      if (kept_pack(v))
        line(name("x", v) + "[step] = " + from + ";");
      else
        line("const " + pack(v) + " " + name("p", v) + " = " + from + ";");
    }
    for (const int o : loop.stores)
      line(std::string("Pack<") +
           storage_type(p_.outputs()[static_cast<std::size_t>(o)].type.dtype()) + ", kVector> q" +
           std::to_string(o) + ";");
    line("#pragma unroll");
    open("for (int j = 0; j < kVector; ++j)");
    for (int v : loop.packs) {
      const std::string from = kept_pack(v) ? name("x", v) + "[step]" : name("p", v);
      line(std::string("const ") + type(v) + " " + name("v", v) + " = " + from + ".at[j];");
    }
    for (int v : loop.kept) {
      line(std::string("const ") + type(v) + " " + name("v", v) + " = " + name("k", v) +
           "[step * kVector + j];");
    }
    for (int v : loop.ops) {
      const bool of_row =
          stages_.is_draw(v) && stages_.kind(stages_.root(op_of(v).operands[0])) == Kind::row;
      define(v, (of_row ? col : index) + " + j");
      if (rows && stages_.is_kept(v))
        line(name("k", v) + "[step * kVector + j] = " + name("v", v) + ";");
    }
    for (int v : loop.reductions) {
      const FusedProgram::Op& op = op_of(v);
      const int x = stages_.root(op.operands[0]);
      line(name("r", v) + ".add(" + (part_ == "0" ? "j" : "part * kVector + j") + ", " +
           widened(op.dtype, name("v", x)) + ");");
    }
    for (const int o : loop.stores)
      line("q" + std::to_string(o) + ".at[j] = " + name("v", stored(o)) + ";");
    close();
    for (const int o : loop.stores) {
      const std::string text =
          "store(args.out" + std::to_string(o) + " + " + index + ", q" + std::to_string(o) + ");";
      line(rows && rows_a_block_ > 1 ? "if (here) " + text : text);
    }
  }
  int stored(int o) const { return stages_.root(p_.outputs()[static_cast<std::size_t>(o)].value); }
  bool kept_pack(int v) const {
    return made_.form == FusedForm::rows && stages_.is_kept(v) && stages_.kind(v) == Kind::full;
  }

  void write_flat() {
    line("// kVector elements from `first` on.");
    line("template <int kVector>");
    open("__device__ __forceinline__ void cells(const Args& args, const " + index_type() +
         " first)");
    define_scalars();
    write_vector(stages_.loop(0), "first", "0", false);
    close();
    line("");
    open_kernel();
    const std::string index = index_type(), threads = number(made_.threads);
    line("const " + index + " count = static_cast<" + index + ">(args.count), vectors = count / " +
         number(made_.vector) + ";");
    line("const " + index + " me = static_cast<" + index + ">(blockIdx.x) * " + threads +
         " + threadIdx.x;");
    line("const " + index + " all = static_cast<" + index + ">(gridDim.x) * " + threads + ";");
    line("for (" + index + " i = me; i < vectors; i += all) cells<" + number(made_.vector) +
         ">(args, i * " + number(made_.vector) + ");");
    if (made_.vector > 1) {
      line("if (me < count - vectors * " + number(made_.vector) + ") cells<1>(args, vectors * " +
           number(made_.vector) + " + me);");
    }
    close();
  }

  void write_cells() {
    open_kernel();
    const std::string index = index_type(), threads = number(made_.threads);
    write_columns();
    line("constexpr int kVector = " + number(made_.vector) + ";");
    define_scalars();
    line("const " + index + " vectors = static_cast<" + index + ">(args.count / kVector);");
    line("const " + index + " all = static_cast<" + index + ">(gridDim.x) * " + threads + ";");
    open("for (" + index + " i = static_cast<" + index + ">(blockIdx.x) * " + threads +
         " + threadIdx.x; i < vectors; i += all)");
    line("const " + index + " row = i / (kCols / kVector);");
    line(std::string("const ") + column_ + " col = static_cast<" + column_ +
         ">(i % (kCols / kVector)) * kVector;");
    define_rows(0);
    write_vector(stages_.loop(0), "i * kVector", "col", false);
    close();
    close();
  }

  std::string index_type() const { return index_; }
  void write_columns() {
    // In braces, so that the compiler refuses a number which the type does not hold.
    line(std::string("constexpr ") + column_ + " kCols{" + number(p_.cols()) + "};");
  }

  // --- rows

  void write_rows() {
    open_kernel();
    write_columns();
    line("constexpr int kVector = " + number(made_.vector) + ", kGroup = " + number(group_) +
         ", kLanes = " + number(made_.lanes) + ", kRows = " + number(rows_a_block_) + ";");
    if (!streams_)
      line("constexpr int kSteps = " + number(steps() * (group_ / made_.vector)) + ";");
    define_scalars();
    if (made_.lanes > 32) {
      line("int turn = 0;");
      for (int v : stages_.used()) {
        if (!stages_.is_reduction(v)) continue;
        line(std::string("__shared__ ") + compute_type(p_.dtype(v)) + " " + name("partial", v) +
             "[2][kLanes / 32];");
      }
    }
    line("const int lane = static_cast<int>(threadIdx.x) % kLanes;");
    open(
        "for (long first = static_cast<long>(blockIdx.x) * kRows; first < args.count; first += "
        "static_cast<long>(gridDim.x) * kRows)");
    if (rows_a_block_ > 1) {
      // All threads take part in exchanges; threads past the end repeat the last row.
      line("const long mine = first + static_cast<int>(threadIdx.x) / kLanes;");
      line("const bool here = mine < args.count;");
      line("const long row = here ? mine : args.count - 1;");
    } else {
      line("const long row = first;");
    }
    declare_kept();
    define_rows(0);
    for (int l = 0; l < stages_.loops(); ++l) {
      write_row_loop(stages_.loop(l));
      define_rows(l + 1);
    }
    store_rows();
    if (made_.lanes > 32) line("turn ^= 1;");
    close();
    close();
  }

  void declare_kept() {
    if (streams_) return;
    for (int v : stages_.used()) {
      if (!stages_.is_kept(v)) continue;
      if (p_.is_input(v))
        line(pack(v) + " " + name("x", v) + "[kSteps];");
      else
        line(std::string(type(v)) + " " + name("k", v) + "[kSteps * kVector];");
    }
  }

  void write_row_loop(const FusedLoop& loop) {
    for (int v : loop.reductions) {
      const FusedProgram::Op& op = op_of(v);
      if (p_.cols() == 0) {
        line(std::string("const ") + type(v) + " " + name("v", v) + " = " +
             reduction_of_nothing(*op.primitive, op.dtype) + ";");
        continue;
      }
      line("Partial<" + std::string(reduction_functor(*op.primitive)) + ", " +
           compute_type(op.dtype) + ", kGroup> " + name("r", v) + ";");
    }
    if (p_.cols() == 0) return;
    open_elements(loop);
    write_vector(loop, "row * kCols + col", "col", true);
    close();
    if (streams_ && group_ > made_.vector) close();
    for (int v : loop.reductions) {
      const FusedProgram::Op& op = op_of(v);
      const std::string functor = std::string(reduction_functor(*op.primitive)) + "()",
                        mine = name("r", v) + ".whole()";
      const std::string all = made_.lanes > 32
                                  ? "reduce_block<kLanes / 32>(" + mine + ", " +
                                        name("partial", v) + "[turn], " + functor + ")"
                                  : "reduce_lanes<kLanes>(" + mine + ", " + functor + ")";
      line(std::string("const ") + type(v) + " " + name("v", v) + " = " + narrowed(op.dtype, all) +
           ";");
    }
  }

  // Opens the loop over this thread's vectors of a row. In the code, `col` is the column, `part`
  // the vector's number in its group and, if the loop is unrolled, `step` its index in the kept
  // values.
  void open_elements(const FusedLoop& loop) {
    const int parts = group_ / made_.vector;
    part_ = parts == 1 ? "0" : "part";
    const std::int64_t block = static_cast<std::int64_t>(made_.lanes) * group_;
    if (streams_) {
      // If loops with stores were unrolled, the compiler would store element by element in the
      // branches of slow functions.
      if (!loop.stores.empty()) line("#pragma unroll 1");
      const std::string from = parts == 1 ? "col" : "group";
      open(std::string("for (") + column_ + " " + from + " = lane * kGroup; " + from +
           " < kCols; " + from + " += kLanes * kGroup)");
      if (parts == 1) return;
      line("#pragma unroll");
      open("for (int part = 0; part < kGroup / kVector; ++part)");
      line(std::string("const ") + column_ + " col = group + part * kVector;");
      if (p_.cols() % group_ != 0) line("if (col >= kCols) continue;");
      return;
    }
    line("#pragma unroll");
    open("for (int step = 0; step < kSteps; ++step)");
    const bool partial = p_.cols() % block != 0;
    if (parts > 1 && !loop.reductions.empty()) line("const int part = step % (kGroup / kVector);");
    if (partial || !loop.inputs.empty() || !loop.stores.empty()) {
      line(parts == 1 ? "const int col = (step * kLanes + lane) * kVector;"
                      : "const int col = (step / (kGroup / kVector) * kLanes + lane) * kGroup + "
                        "step % (kGroup / kVector) * kVector;");
    }
    if (!partial) return;
    const std::int64_t sure = p_.cols() / block * parts;
    line(sure == 0 ? "if (col >= kCols) continue;"
                   : "if (step >= " + number(sure) + " && col >= kCols) continue;");
  }

  void store_rows() {
    bool any = false;
    for (const FusedProgram::Output& o : p_.outputs()) any |= p_.kind(o.value) == Kind::row;
    if (!any) return;
    // A result may have the memory of an operand that other threads of this row must have read
    // before.
    if (made_.lanes > 1) line(made_.lanes > 32 ? "__syncthreads();" : "__syncwarp();");
    open(rows_a_block_ > 1 ? "if (here && lane == 0)" : "if (lane == 0)");
    for (std::size_t o = 0; o < p_.outputs().size(); ++o) {
      if (p_.kind(p_.outputs()[o].value) != Kind::row) continue;
      line("args.out" + std::to_string(o) + "[row] = " + name("v", stored(static_cast<int>(o))) +
           ";");
    }
    close();
  }

  const FusedProgram& p_;
  FusedStages stages_;
  bool aligned_;
  FusedSource made_;
  int indent_ = 0;
  int group_ = 1;  // in the form rows: neighbours that a thread takes, by accesses of `vector`
                   // elements
  int rows_a_block_ = 1;
  bool streams_ = false;
  const char* index_ = "long";
  const char* const column_;  // the type of columns, which holds a loop's step beyond the last too
  std::string part_ = "0";
};

}  // namespace

FusedSource make_fused_source(const FusedProgram& program, bool aligned) {
  return Writer(program, aligned).take();
}

}  // namespace shmap::cuda
