#include "core/runtime/step_label.h"

#include <memory>
#include <utility>

#include "core/array/mesh_impl.h"
#include "core/base/scope_names.h"
#include "core/device/backend.h"
#include "core/device/host_log.h"
#include "core/ir/params.h"
#include "core/runtime/flow_task.h"
#include "core/runtime/fused_columns.h"
#include "core/runtime/fused_program.h"
#include "core/runtime/rates.h"

namespace shmap {

namespace {

thread_local std::shared_ptr<const SpanSubject> subject_here;

std::string joined(Types types) {
  std::string text;
  for (const ShapedArray& t : types) text += (text.empty() ? "" : ", ") + to_string(t);
  return text;
}

std::vector<std::string> members_of(const FusedProgram& program) {
  std::vector<std::string> names;
  for (const FusedProgram::Op& op : program.ops())
    names.emplace_back(op.primitive != nullptr ? op.primitive->name : "broadcast");
  return names;
}

// Types and parameters are copied; their text is made at its first use.
class StepSubject final : public SpanSubject {
 public:
  StepSubject(const Step& step, Types out_types)
      : primitive_(step.primitive),
        params_(step.params.clone()),
        in_(step.in_types.begin(), step.in_types.end()),
        out_(out_types.begin(), out_types.end()),
        scope_(joined_scopes(current_scope(), scope_of(step.source))),
        source_(step.source) {}

  SpanDetails details() const override {
    SpanDetails d;
    d.scope = scope_;
    d.source = source_.str();
    d.operands = joined(in_);
    d.results = joined(out_);
    const bool fused = &primitive_ == &fused_p, columns = &primitive_ == &fused_columns_p;
    if (fused) d.members = members_of(*params_as<FusedParams>(*params_).program);
    if (columns) {
      const auto& p = params_as<FusedColumnsParams>(*params_);
      d.members = members_of(*p.program);
      d.members.emplace_back(p.reduction->name);
    }
    d.parameters = to_string(*params_);
    const Cost work = estimated_work(primitive_, in_, *params_, out_);
    d.bytes = work.bytes;
    if (!primitive_.moves_data()) {
      d.flops = primitive_.flops != nullptr ? primitive_.flops(in_, *params_, out_) : work.flops;
    }
    return d;
  }

 private:
  const Primitive& primitive_;
  const std::unique_ptr<Params> params_;
  const std::vector<ShapedArray> in_, out_;
  const std::string scope_;
  const SourceLine source_;
};

}  // namespace

LabelledStep::LabelledStep(const Step& step, Types out_types)
    : mesh_(step.mesh),
      before_(std::exchange(subject_here, std::make_shared<const StepSubject>(step, out_types))) {}

LabelledStep::~LabelledStep() {
  subject_here = std::move(before_);
  if (!capturing()) log_memory_of(mesh_);
}

const char* task_name_slow(const char* name) {
  return labelled_name(name, {subject_here, 0, {}, {}, {}});
}

const char* collective_task_name(const char* name, std::uint64_t number,
                                 std::vector<std::pair<int, int>> moves) {
  return labelled_name(name, {subject_here, number, std::move(moves), {}, {}});
}

const char* exchange_task_name(const char* name, std::uint64_t number, std::vector<int> sends_to,
                               std::vector<int> receives_from) {
  return labelled_name(name,
                       {subject_here, number, {}, std::move(sends_to), std::move(receives_from)});
}

void log_memory_of(const detail::MeshImpl& mesh) noexcept {
  if (!host_log_runs()) return;
  const MemorySpace* last = nullptr;
  for (std::uint32_t p = 0; p < mesh.local_count(); ++p) {
    MemorySpace* const space = mesh.local(p).space;
    if (space == last) continue;
    last = space;
    log_memory(space->id(), space->bytes_in_use());
  }
}

}  // namespace shmap
