#include "core/runtime/task_program.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "core/base/free_ranges.h"
#include "core/base/inline_vector.h"
#include "core/base/round_up.h"
#include "core/ir/node.h"
#include "core/ir/types_of.h"
#include "core/runtime/op_site.h"
#include "core/runtime/rates.h"

namespace shmap {

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t slot_bytes(std::int64_t bytes) {
  return round_up(std::max<std::int64_t>(bytes, 1), kAlignment);
}

// Assigns memory to values by first fit; values that do not live at the same time share bytes.
class Arena {
 public:
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t size = slot_bytes(bytes);
    if (const std::int64_t at = free_.take(size); at != FreeRanges::kNone) return at;
    const std::int64_t at = end_;
    end_ += size;
    return at;
  }
  void give(std::int64_t at, std::int64_t bytes) { free_.give(at, slot_bytes(bytes)); }
  std::int64_t end() const { return end_; }

 private:
  FreeRanges free_;
  std::int64_t end_ = 0;
};

}  // namespace

// Assigns memory to every value, step by step.
class TaskProgramMaker {
 public:
  TaskProgramMaker(JaxprRef jaxpr, const detail::MeshImpl& mesh, std::vector<int> owned)
      : program_(new TaskProgram), jaxpr_(*jaxpr), owned_(std::move(owned)) {
    program_->jaxpr_ = std::move(jaxpr);
    program_->kind_ = mesh.backend().kind();
  }

  std::shared_ptr<const TaskProgram> make() {
    for (const Eqn& e : jaxpr_.eqns)
      if (!can_run(e)) return nullptr;
    find_roots();
    for (std::size_t i = 0; i < jaxpr_.binders.size(); ++i) {
      Root& root = roots_[jaxpr_.binders[i].get()];
      root.place = {Address::operand, static_cast<std::uint32_t>(i), 0};
      root.bytes = jaxpr_.binders[i]->type.nbytes();
      root.writable = owned_[i] >= 0;
    }
    choose_results();
    for (std::size_t e = 0; e < jaxpr_.eqns.size(); ++e) add(jaxpr_.eqns[e], e);
    for (std::size_t o = 0; o < jaxpr_.outs.size(); ++o) finish(o);
    program_->scratch_bytes_ = arena_.end();
    return std::shared_ptr<const TaskProgram>(program_.release());
  }

 private:
  using Address = TaskProgram::Address;
  // A piece of memory and the values in it: a view shares the root of its operand.
  struct Root {
    Address place;
    std::int64_t bytes = 0;
    std::size_t last = 0;     // the last step that reads any of its values; kResult: a result
    bool writable = false;    // a step may overwrite it after all others have read it
    bool in_scratch = false;  // in scratch memory, to be freed after the last use
    int result = -1;          // the result to whose memory it belongs
  };
  static constexpr std::size_t kResult = ~std::size_t{0};
  struct View {
    const Var* root;
    std::int64_t offset;
    int found = -1;  // the part of the root relative to which `offset` counts; -1: the whole root
  };

  bool can_run(const Eqn& e) const {
    if (view_of(e) >= 0) return true;
    return !e.primitive->group && !e.primitive->interpret && !e.primitive->has_effect &&
           e.primitive->kernel(program_->kind_).run != nullptr;
  }

  // The byte offset of the result in operand 0's memory, or -1 where a kernel computes the result.
  static std::int64_t view_of(const Eqn& e) {
    if (e.in.empty() || e.in[0].is_literal()) return -1;
    if (!e.primitive->view) return -1;
    return e.primitive->view(e.in[0].type(), *e.params, e.out[0]->type);
  }

  // Whether the result is a part of operand 0 at a position that is found when the step runs. The
  // operand's memory must not be written by any step of the program, so that the part stays valid.
  bool is_found(const Eqn& e) const {
    if (!e.primitive->dynamic_view || e.in.empty() || e.in[0].is_literal()) return false;
    if (unwritten_.count(view(e.in[0].var()).root) == 0) return false;
    // Zero in any integer dtype. Whether the part is contiguous does not depend on its position.
    static constexpr std::uint64_t kZero = 0;
    std::vector<const void*> at_zero(e.in.size(), &kZero);
    return e.primitive->dynamic_view(types_of(e.in), at_zero, *e.params, e.out[0]->type) >= 0;
  }

  View view(const Var* v) const {
    const auto it = views_.find(v);
    return it != views_.end() ? it->second : View{v, 0};
  }

  void find_roots() {
    for (std::size_t i = 0; i < jaxpr_.binders.size(); ++i)
      if (owned_[i] < 0) unwritten_[jaxpr_.binders[i].get()] = true;
    for (const Eqn& e : jaxpr_.eqns) {
      if (const std::int64_t offset = view_of(e); offset >= 0) {
        const View of = view(e.in[0].var());
        views_[e.out[0].get()] = {of.root, of.offset + offset, of.found};
      } else if (is_found(e)) {
        views_[e.out[0].get()] = {view(e.in[0].var()).root, 0, program_->parts_found_++};
      }
    }
    for (std::size_t k = 0; k < jaxpr_.eqns.size(); ++k)
      for (const Atom& a : jaxpr_.eqns[k].in)
        if (!a.is_literal()) roots_[view(a.var()).root].last = k;
    for (const Atom& a : jaxpr_.outs)
      if (!a.is_literal()) roots_[view(a.var()).root].last = kResult;
  }

  // Lets steps write values that are whole results directly to the results' memory; each value
  // once.
  void choose_results() {
    for (std::size_t o = 0; o < jaxpr_.outs.size(); ++o) {
      if (jaxpr_.outs[o].is_literal()) continue;
      const Var* v = jaxpr_.outs[o].var();
      const View of = view(v);
      Root& root = roots_[of.root];
      const bool is_binder = root.bytes > 0 && root.place.kind == Address::operand;
      if (is_binder || of.found >= 0 || of.offset != 0 || root.result >= 0 ||
          of.root->type.nbytes() != v->type.nbytes())
        continue;
      root.result = static_cast<int>(o);
    }
  }

  void add(const Eqn& e, std::size_t index) {
    if (view_of(e) >= 0) return;
    TaskProgram& p = *program_;
    TaskProgram::Step step{&e, p.places_.size(), 0};
    for (std::size_t i = 0; i < e.in.size(); ++i) {
      const Atom& a = e.in[i];
      p.types_.push_back(a.type());
      if (a.is_literal()) {
        step.literals |= i < 32 ? 1u << i : 0;
        p.places_.push_back(literal(a));
      } else {
        p.places_.push_back(place(a.var()));
      }
    }
    step.out = p.places_.size();
    if (const auto part = views_.find(e.out[0].get()); part != views_.end()) {
      step.found = part->second.found;
      p.types_.push_back(e.out[0]->type);
      p.places_.push_back({});  // parallel to types_
      p.steps_.push_back(step);
      return give_operands_back(e, index);
    }
    std::uint32_t taken = 0;  // bit i: a result has the memory of operand i
    for (std::size_t o = 0; o < e.out.size(); ++o) add_result(e, index, o, taken);
    add_scratch(step);
    p.steps_.push_back(step);
    const Cost work = estimated_work(e);
    p.cost_.flops += work.flops;
    p.cost_.bytes += work.bytes;
    give_operands_back(e, index);
    for (const VarRef& v : e.out)
      if (roots_[v.get()].last == 0) give_back(roots_[v.get()], 0);
  }
  // Gives result o its memory: that of an operand, of a result of the program, or scratch.
  void add_result(const Eqn& e, std::size_t index, std::size_t o, std::uint32_t& taken) {
    const int reused = overwritten(e, index, o, taken);
    const Var* v = e.out[o].get();
    Root& root = roots_[v];  // a value that no step reads has last = 0, and is freed at once
    root.bytes = v->type.nbytes();
    if (reused >= 0) {
      taken |= 1u << reused;
      Root& old = roots_[view(e.in[static_cast<std::size_t>(reused)].var()).root];
      root.place = old.place;
      root.writable = old.writable;
      root.in_scratch = std::exchange(old.in_scratch, false);
      // A value that was assigned to a result's memory is copied there at the end, unless it may
      // stay.
      root.result = -1;
    } else if (root.result >= 0) {
      root.place = {Address::result, static_cast<std::uint32_t>(root.result), 0};
    } else {
      root.place = {Address::scratch, 0, arena_.take(root.bytes)};
      root.in_scratch = root.writable = true;
    }
    program_->types_.push_back(v->type);
    program_->places_.push_back(root.place);
  }
  void give_operands_back(const Eqn& e, std::size_t index) {
    for (const Atom& a : e.in)
      if (!a.is_literal()) give_back(roots_[view(a.var()).root], index);
  }

  void give_back(Root& root, std::size_t index) {
    if (!root.in_scratch || root.last != index) return;
    root.in_scratch = false;
    arena_.give(root.place.offset, root.bytes);
  }

  // The operand whose memory result o overwrites, or -1; decided as in run_step. `taken`: the
  // operands that other results overwrite.
  int overwritten(const Eqn& e, std::size_t index, std::size_t o, std::uint32_t taken) {
    const Kernel& kernel = e.primitive->kernel(program_->kind_);
    const ShapedArray& made = e.out[o]->type;
    const int result = roots_[e.out[o].get()].result;
    for (std::size_t i = 0; i < e.in.size(); ++i) {
      if (e.in[i].is_literal() ||
          !may_overwrite(*e.primitive, kernel, *e.params, o, made.dtype(), i,
                         e.in[i].type().dtype()) ||
          (taken >> i & 1u))
        continue;
      const View of = view(e.in[i].var());
      const Root& root = roots_[of.root];
      if (!root.writable || root.last != index || root.bytes != made.nbytes() || of.offset != 0)
        continue;
      // A result of the program that a step writes completely is better computed in its final
      // memory.
      const bool may_stay =
          root.place.kind == Address::operand && owned_[root.place.index] == result;
      if (result >= 0 && !may_stay) continue;
      std::size_t mentions = 0;
      for (const Atom& a : e.in)
        mentions += !a.is_literal() && view(a.var()).root == of.root ? 1 : 0;
      if (mentions == 1) return static_cast<int>(i);
    }
    return -1;
  }

  Address place(const Var* v) const {
    const View of = view(v);
    if (of.found >= 0) return {Address::found, static_cast<std::uint32_t>(of.found), of.offset};
    Address at = roots_.at(of.root).place;
    at.offset += of.offset;
    return at;
  }

  Address literal(const Atom& a) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const LiteralNode*>(node_of(a.literal()))->value, sizeof bits);
    program_->literals_.push_back(bits);
    return {Address::literal, static_cast<std::uint32_t>(program_->literals_.size() - 1), 0};
  }

  // Scratch of kernels that are never split, as run_step provides it.
  void add_scratch(TaskProgram::Step& step) {
    const Kernel& kernel = step.eqn->primitive->kernel(program_->kind_);
    if (!kernel.scratch || kernel.parts) return;
    const std::size_t n_in = step.eqn->in.size(), n_out = step.eqn->out.size();
    const std::vector<const void*> in(n_in, nullptr);
    const std::vector<void*> out(n_out, nullptr);
    const Types types(program_->types_);
    KernelCall call{in, out, types.subspan(step.in, n_in), types.subspan(step.out, n_out),
                    *step.eqn->params};
    const std::int64_t bytes = kernel.scratch(call);
    if (bytes == 0) return;
    step.scratch = arena_.take(bytes);
    arena_.give(step.scratch, bytes);  // before the operands are freed: no value of this step gets
                                       // the same bytes
  }

  void finish(std::size_t o) {
    TaskProgram::Copy& copy = program_->copies_.emplace_back();
    const Atom& a = jaxpr_.outs[o];
    copy.bytes = a.type().nbytes();
    if (a.is_literal()) {
      copy.from = literal(a);
      return;
    }
    copy.from = place(a.var());
    copy.written = copy.from.kind == Address::result && copy.from.index == o;
    copy.in_place = copy.from.kind == Address::operand && copy.from.offset == 0 &&
                    owned_[copy.from.index] == static_cast<int>(o) &&
                    jaxpr_.binders[copy.from.index]->type.nbytes() == copy.bytes;
  }

  std::unique_ptr<TaskProgram> program_;
  const Jaxpr& jaxpr_;
  const std::vector<int> owned_;
  VarMap<View> views_;
  VarMap<bool> unwritten_;  // binders whose memory no step may write
  VarMap<Root> roots_;
  Arena arena_;
};

std::shared_ptr<const TaskProgram> TaskProgram::make(JaxprRef jaxpr, const detail::MeshImpl& mesh,
                                                     std::vector<int> owned) {
  return TaskProgramMaker(std::move(jaxpr), mesh, std::move(owned)).make();
}

// The addresses of one run.
class TaskProgram::Run {
 public:
  Run(const TaskProgram& program, std::span<const void* const> operands,
      std::span<void* const> results, std::byte* scratch)
      : found(static_cast<std::size_t>(program.parts_found_)),
        program_(program),
        operands_(operands),
        results_(results),
        scratch_(scratch) {}

  std::byte* address(const Address& at) {
    switch (at.kind) {
      case Address::scratch:
        return scratch_ + at.offset;
      case Address::operand:
        // Written only where its owner has allowed it.
        return static_cast<std::byte*>(const_cast<void*>(operands_[at.index])) + at.offset;
      case Address::result:
        return static_cast<std::byte*>(results_[at.index]) + at.offset;
      case Address::found:
        return const_cast<std::byte*>(found[at.index]) + at.offset;  // never written
      default:
        return reinterpret_cast<std::byte*>(
            const_cast<std::uint64_t*>(&program_.literals_[at.index]));
    }
  }

  InlineVector<const std::byte*, 32> found;

 private:
  const TaskProgram& program_;
  std::span<const void* const> operands_;
  std::span<void* const> results_;
  std::byte* scratch_;
};

bool TaskProgram::is_shared() const {
  if (steps_.size() > 1 || scratch_bytes_ > 0 || parts_found_ > 0) return false;
  for (const Copy& copy : copies_)
    if (copy.in_place || (!copy.written && copy.from.kind == Address::result)) return false;
  if (steps_.empty()) return true;
  const Kernel& kernel = steps_[0].eqn->primitive->kernel(kind_);
  return kernel.parts != nullptr && kernel.scratch == nullptr;
}

int TaskProgram::parts(std::span<const void* const> operands, std::span<void* const> results,
                       int workers) const {
  if (steps_.empty() || workers <= 1) return 1;
  Run here(*this, operands, results, nullptr);
  const Step& step = steps_[0];
  const std::size_t n_in = step.eqn->in.size(), n_out = step.eqn->out.size();
  InlineVector<const void*, 8> in(n_in);
  InlineVector<void*, 4> out(n_out);
  for (std::size_t i = 0; i < n_in; ++i) in[i] = here.address(places_[step.in + i]);
  for (std::size_t o = 0; o < n_out; ++o) out[o] = here.address(places_[step.out + o]);
  const Types types(types_);
  KernelCall call{in.span(), out.span(), types.subspan(step.in, n_in),
                  types.subspan(step.out, n_out), *step.eqn->params};
  call.literals = step.literals;
  return step.eqn->primitive->kernel(kind_).parts(call, workers);
}

void TaskProgram::run(const Caller& caller, std::span<const void* const> operands,
                      std::span<void* const> results, std::byte* scratch) const {
  // Where there are more parts than the kernel takes, the last ones have nothing to do.
  const int shared = caller.parts > 1 ? parts(operands, results, caller.parts) : 1;
  if (caller.part >= shared) return;
  Run here(*this, operands, results, scratch);
  const auto address = [&here](const Address& at) { return here.address(at); };
  const Types types(types_);
  for (const Step& step : steps_) {
    const Primitive& primitive = *step.eqn->primitive;
    const std::size_t n_in = step.eqn->in.size(), n_out = step.eqn->out.size();
    InlineVector<const void*, 8> in(n_in);
    InlineVector<void*, 4> out(n_out);
    for (std::size_t i = 0; i < n_in; ++i) in[i] = address(places_[step.in + i]);
    if (step.found >= 0) {
      const std::int64_t offset = primitive.dynamic_view(types.subspan(step.in, n_in), in.span(),
                                                         *step.eqn->params, types_[step.out]);
      here.found[static_cast<std::size_t>(step.found)] =
          static_cast<const std::byte*>(in[0]) + offset;
      continue;
    }
    for (std::size_t o = 0; o < n_out; ++o) out[o] = address(places_[step.out + o]);
    KernelCall call{in.span(), out.span(), types.subspan(step.in, n_in),
                    types.subspan(step.out, n_out), *step.eqn->params};
    call.native = caller.native;
    call.part = caller.part;
    call.parts = shared;
    call.literals = step.literals;
    call.position = caller.position;
    if (step.scratch >= 0) call.scratch = scratch + step.scratch;
    run_kernel(primitive.kernel(kind_).run, call,
               {&primitive, caller.mesh, caller.position, caller.number, step.eqn->source});
  }
  if (caller.part > 0) return;
  for (std::size_t o = 0; o < copies_.size(); ++o) {
    const Copy& copy = copies_[o];
    if (copy.in_place || copy.written || copy.bytes == 0) continue;
    std::memcpy(results[o], address(copy.from), static_cast<std::size_t>(copy.bytes));
  }
}

}  // namespace shmap
