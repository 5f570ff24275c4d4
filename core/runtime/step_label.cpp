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

// The step whose tasks this thread enqueues now, or null.
thread_local std::shared_ptr<const SpanSubject> current_step;

std::string comma_separated(Types types) {
  std::string text;
  for (const ShapedArray& t : types) text += (text.empty() ? "" : ", ") + to_string(t);
  return text;
}

std::vector<std::string> names_of_operations(const FusedProgram& program) {
  std::vector<std::string> names;
  for (const FusedProgram::Op& op : program.ops())
    names.emplace_back(op.primitive != nullptr ? op.primitive->name : "broadcast");
  return names;
}

// The operations that were fused into the step's one, in order; none if it is no fused one.
std::vector<std::string> fused_operations(const Primitive& primitive, const Params& params) {
  if (&primitive == &fused_p) return names_of_operations(*params_as<FusedParams>(params).program);
  if (&primitive != &fused_columns_p) return {};
  const auto& p = params_as<FusedColumnsParams>(params);
  std::vector<std::string> names = names_of_operations(*p.program);
  names.emplace_back(p.reduction->name);
  return names;
}

// A step as the subject of labels. It outlives the Step, so it copies types and parameters; their
// texts are made when somebody asks for them.
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
    d.operands = comma_separated(in_);
    d.results = comma_separated(out_);
    d.members = fused_operations(primitive_, *params_);
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

SpanLabel label_of_current_step(std::uint64_t collective = 0) {
  SpanLabel label;
  label.subject = current_step;
  label.collective = collective;
  return label;
}

}  // namespace

LabelledStep::LabelledStep(const Step& step, Types out_types)
    : mesh_(step.mesh),
      before_(std::exchange(current_step, std::make_shared<const StepSubject>(step, out_types))) {}

LabelledStep::~LabelledStep() {
  current_step = std::move(before_);
  if (!capturing()) log_memory_of(mesh_);
}

const char* labelled_task_name(const char* name) {
  return labelled_name(name, label_of_current_step());
}

const char* collective_task_name(const char* name, std::uint64_t number,
                                 std::vector<std::pair<int, int>> moves) {
  SpanLabel label = label_of_current_step(number);
  label.moves = std::move(moves);
  return labelled_name(name, std::move(label));
}

const char* exchange_task_name(const char* name, std::uint64_t number, std::vector<int> sends_to,
                               std::vector<int> receives_from) {
  SpanLabel label = label_of_current_step(number);
  label.sends_to = std::move(sends_to);
  label.receives_from = std::move(receives_from);
  return labelled_name(name, std::move(label));
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
