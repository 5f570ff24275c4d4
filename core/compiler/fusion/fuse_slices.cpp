#include "core/compiler/fusion/fuse_slices.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/compiler/fusion/fused_from_fused.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/slicing.h"
#include "core/runtime/fused_program.h"

namespace shmap {

namespace {

// Shorter rows are not worth a kernel call each.
constexpr std::int64_t kShortestRow = 256;  // bytes

// A slice as rows that begin at equal distances (the pitch).
struct Rows {
  std::int64_t rows = 1, cols = 1;
  FusedProgram::Window window;
};

bool as_rows(const Eqn& e, Rows* out) {
  if (e.primitive != &slice_p || e.in[0].is_literal()) return false;
  const auto& p = params_as<SliceParams>(*e.params);
  const Shape &whole = e.in[0].type().dims(), &taken = e.out[0]->type.dims();
  if (taken.num_elements() == 0 || slice_p.view(e.in[0].type(), p, e.out[0]->type) >= 0)
    return false;
  *out = {};
  out->window.of = whole.num_elements();
  std::int64_t stride = 1;
  bool in_row = true;  // true if the inner dims are taken whole
  for (std::size_t d = whole.size(); d-- > 0; stride *= whole[d]) {
    if (p.strides[d] != 1 && taken[d] != 1) return false;
    out->window.first += p.start_indices[d] * stride;
    if (taken[d] == 1 && (!in_row || whole[d] != 1)) {
      in_row = false;  // the next dim further out starts a new row
      continue;
    }
    if (in_row) {
      out->cols *= taken[d];
      in_row = taken[d] == whole[d];
    } else if (out->window.pitch == 0) {
      out->window.pitch = stride;
      out->rows = taken[d];
    } else if (stride == out->window.pitch * out->rows) {
      out->rows *= taken[d];
    } else {
      return false;
    }
  }
  return out->window.pitch >= out->cols &&
         out->cols * itemsize(e.in[0].type().dtype()) >= kShortestRow;
}

class SliceFuser {
 public:
  explicit SliceFuser(const Jaxpr& jaxpr) : program_(jaxpr), made_(jaxpr) {}

  JaxprRef run() {
    for (int i = 0; i < program_.size(); ++i) {
      Rows rows;
      if (as_rows(program_.eqn(i), &rows) && is_fused_alone(program_.eqn(i).out[0].get()))
        slices_.emplace(i, Slice{rows, program_.reads(program_.eqn(i).out[0].get())});
    }
    if (slices_.empty()) return JaxprRef(&program_.jaxpr());
    for (int i = 0; i < program_.size(); ++i)
      if (program_.eqn(i).primitive == &fused_p) take_slices(i);
    if (!made_.is_edited()) return JaxprRef(&program_.jaxpr());
    for (const auto& [i, slice] : slices_)
      if (slice.reads == 0) made_.remove(i);
    return made_.finish();
  }

 private:
  struct Slice {
    Rows rows;
    int reads;  // the equations that still read the slice itself
  };

  // True if only fused equations read the slice. Otherwise it has to be stored in any case, and
  // fused equations may read it too.
  bool is_fused_alone(const Var* v) const {
    const std::span<const int> users = program_.users(v);
    return !program_.is_result(v) && std::all_of(users.begin(), users.end(), [&](int i) {
      return program_.eqn(i).primitive == &fused_p;
    });
  }

  void take_slices(int equation) {
    Eqn e = program_.eqn(equation);
    const FusedProgram& old = *params_as<FusedParams>(*e.params).program;
    // Without values of rows and columns, the space of a program may be changed.
    const bool any_rows = fits_any_rows(old);
    std::int64_t rows = any_rows ? 0 : old.rows(), cols = any_rows ? 0 : old.cols();
    std::vector<Slice*> taken(e.in.size(), nullptr);
    bool any = false;
    std::size_t operand = 0;
    for (const FusedProgram::Input& input : old.inputs()) {
      if (input.literal) continue;
      const std::size_t i = operand++;
      if (input.kind != FusedKind::full || input.window.of > 0 || input.repeat.count > 0) continue;
      const auto found = slices_.find(program_.maker(e.in[i]));
      if (found == slices_.end()) continue;
      const Rows& r = found->second.rows;
      if (rows == 0) rows = r.rows, cols = r.cols;
      if (r.rows != rows || r.cols != cols) continue;
      taken[i] = &found->second;
      any = true;
    }
    if (!any) return;
    auto program = std::make_shared<FusedProgram>(rows, cols);
    operand = 0;
    for (int v = 0; v < old.value_count(); ++v) {
      const auto at = static_cast<std::size_t>(old.index(v));
      if (old.is_input(v)) {
        const FusedProgram::Input& input = old.inputs()[at];
        Slice* const slice = input.literal ? nullptr : taken[operand];
        if (slice != nullptr) {
          --slice->reads;
          e.in[operand] = program_.made_by(e.in[operand])->in[0];
          program->add_window(input.dtype, slice->rows.window);
        } else {
          program->add_input_like(input);
        }
        operand += !input.literal;
        continue;
      }
      program->add_like(old.ops()[at]);
    }
    for (const FusedProgram::Output& output : old.outputs())
      program->add_output(output.value, output.type);
    e.params = std::make_shared<FusedParams>(std::move(program));
    made_.put(equation, std::move(e));
  }

  const ProgramIndex program_;
  Rewriter made_;
  std::unordered_map<int, Slice> slices_;  // by the number of the equation
};

}  // namespace

JaxprRef fuse_slices(const Jaxpr& jaxpr) { return SliceFuser(jaxpr).run(); }

void register_pass_fuse_slices() {
  // Not for GPUs, whose compiled kernels count the elements of whole operands.
  register_pass({.order = PassOrder::fuse_slices,
                 .name = "fuse_slices",
                 .run = of_program<fuse_slices>,
                 .runs_on = fused_reads_windows,
                 .merges = true});
}

}  // namespace shmap
