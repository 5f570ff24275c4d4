#include "core/runtime/owned_call.h"

#include "core/ir/node.h"
#include "core/ir/trace.h"

namespace shmap {

OwnedCall::OwnedCall(const KernelCall& call, KernelFn run, void* scratch, const OpSite& site,
                     std::span<const Array> operands)
    : run_(run),
      scratch_(scratch),
      site_(site),
      params_(call.params.clone()),
      in_(call.in.begin(), call.in.end()),
      out_(call.out.begin(), call.out.end()),
      types_(call.in_types.begin(), call.in_types.end()),
      literals_(operands.size()),
      literal_mask_(call.literals) {
  types_.insert(types_.end(), call.out_types.begin(), call.out_types.end());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Node* node = node_of(operands[i]);
    if (node->kind != NodeKind::literal) continue;
    __builtin_memcpy(&literals_[i], static_cast<const LiteralNode*>(node)->value, 8);
    in_[i] = &literals_[i];
  }
}

KernelCall OwnedCall::call(std::span<void* const> out, const TaskContext& context) const {
  KernelCall c{in_, out, in_types(), out_types(), *params_};
  c.native = context.native;
  c.literals = literal_mask_;
  c.position = site_.position;
  return c;
}

void OwnedCall::run_task(void* args, const TaskContext& context) {
  const auto* self = static_cast<OwnedCall*>(args);
  KernelCall c = self->call(self->out_, context);
  c.part = context.part;
  c.parts = context.parts;
  c.scratch = self->scratch_;
  run_kernel(self->run_, c, self->site_);
}

bool OwnedCall::join(void* args, const Task& before, const TaskContext& context) {
  const auto* self = static_cast<OwnedCall*>(args);
  if (before.run != run_task) return false;
  const auto* made = static_cast<OwnedCall*>(before.args);
  const ShapedArray &term = made->out_types()[0], &sum = self->out_types()[0];
  if (made->accumulate == nullptr || term.dtype() != sum.dtype() || term.nbytes() != sum.nbytes())
    return false;
  run_kernel(made->accumulate, made->call(self->out_, context), made->site_);
  const KernelCall added{self->in_, self->out_, self->in_types(), self->out_types(),
                         *self->params_};
  run_kernel([](const KernelCall&) {}, added, self->site_);
  return true;
}

std::string OwnedCall::describe_task(const void* args) {
  const OpSite& site = static_cast<const OwnedCall*>(args)->site_;
  return describe(site) + at_line(site.source);
}

void OwnedCall::drop(void* args) noexcept { delete static_cast<OwnedCall*>(args); }

}  // namespace shmap
