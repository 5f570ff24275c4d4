#include "core/runtime/flow_task.h"

#include <algorithm>
#include <cstring>

#include "core/base/element_type.h"
#include "core/base/inline_vector.h"
#include "core/base/round_up.h"
#include "core/ir/planned_primitive.h"
#include "core/runtime/op_site.h"

namespace shmap {

namespace {

constexpr std::int64_t kFlowAlignment = 64;

// Two buffers for each value of a carry, one to read and one to write; they are adjacent.
class CarryLayout {
 public:
  CarryLayout(const Jaxpr& jaxpr, std::size_t first, std::size_t count) {
    for (std::size_t k = 0; k < count; ++k) {
      bytes_.push_back(jaxpr.binders[first + k]->type.nbytes());
      offsets_.push_back(end_);
      end_ += 2 * round_up(bytes_.back(), kFlowAlignment);
    }
  }
  std::int64_t end() const { return end_; }
  std::int64_t bytes(std::size_t k) const { return bytes_[k]; }
  std::byte* at(std::byte* scratch, std::size_t k, bool second) const {
    return scratch + offsets_[k] + (second ? round_up(bytes_[k], kFlowAlignment) : 0);
  }

 private:
  std::vector<std::int64_t> bytes_, offsets_;
  std::int64_t end_ = 0;
};

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// The carry of a loop while it runs: where each value is read, and where the next one is written.
class Carry {
 public:
  Carry(const CarryLayout& layout, std::size_t count, std::byte* scratch)
      : layout_(layout), scratch_(scratch), second_(count, false) {}
  std::size_t size() const { return second_.size(); }
  std::byte* now(std::size_t k) const { return layout_.at(scratch_, k, second_[k]); }
  std::byte* next(std::size_t k) const { return layout_.at(scratch_, k, !second_[k]); }
  void advance(const TaskProgram& body) {
    for (std::size_t k = 0; k < size(); ++k)
      if (!body.stays(k)) second_[k] = !second_[k];
  }

 private:
  const CarryLayout& layout_;
  std::byte* scratch_;
  std::vector<bool> second_;
};

class ScanFlow final : public FlowTask {
 public:
  explicit ScanFlow(ScanTask task)
      : task_(std::move(task)), layout_(task_.body->jaxpr(), task_.consts, task_.carry) {
    const Jaxpr& body = task_.body->jaxpr();
    for (std::size_t i = task_.consts + task_.carry; i < body.binders.size(); ++i)
      x_bytes_.push_back(body.binders[i]->type.nbytes());
    for (std::size_t o = task_.carry; o < body.outs.size(); ++o)
      y_bytes_.push_back(body.outs[o].type().nbytes());
    std::int64_t at = layout_.end();
    for (std::int64_t trip = 0; trip < std::max<std::int64_t>(1, task_.merged_trips); ++trip) {
      for (const std::int64_t bytes : y_bytes_) {
        // Kernels write to aligned memory. A result of an odd size gets memory of its own, from
        // which it is copied to ys.
        y_places_.push_back(bytes % kFlowAlignment == 0 ? -1 : at);
        if (bytes % kFlowAlignment != 0) at += round_up(bytes, kFlowAlignment);
      }
    }
    body_at_ = at;
  }

  void run(const KernelCall& call, const TaskProgram::Caller& caller) const override {
    auto* scratch = static_cast<std::byte*>(call.scratch);
    Carry carry(layout_, task_.carry, scratch);
    for (std::size_t k = 0; k < task_.carry; ++k)
      copy_bytes(carry.now(k), call.in[task_.consts + k], layout_.bytes(k));
    std::int64_t trip = 0;
    if (task_.merged)
      trip = run_trips(*task_.merged, task_.merged_trips, trip, call, caller, carry);
    run_trips(*task_.body, 1, trip, call, caller, carry);
    for (std::size_t k = 0; k < task_.carry; ++k)
      copy_bytes(call.out[k], carry.now(k), layout_.bytes(k));
  }

  std::int64_t scratch_bytes() const override {
    return body_at_ +
           std::max(task_.body->scratch_bytes(), task_.merged ? task_.merged->scratch_bytes() : 0);
  }
  Cost cost() const override {
    const Cost trip = task_.body->cost();
    const auto n = static_cast<double>(task_.length);
    return {n * trip.flops, n * trip.bytes};
  }
  std::string text() const override {
    return "scan of " + std::to_string(task_.length) +
           (task_.merged ? ", " + std::to_string(task_.merged_trips) + " at a time" : "");
  }
  std::vector<const Jaxpr*> programs() const override { return {&task_.body->jaxpr()}; }

 private:
  // Runs the trips from `trip` on that `program` can run, `trips` at a time; returns the first trip
  // that is left.
  std::int64_t run_trips(const TaskProgram& program, std::int64_t trips, std::int64_t trip,
                         const KernelCall& call, const TaskProgram::Caller& caller,
                         Carry& carry) const {
    if (trip + trips > task_.length) return trip;
    auto* const scratch = static_cast<std::byte*>(call.scratch);
    const std::size_t first = task_.consts, xs_at = first + task_.carry;
    const std::size_t xs = x_bytes_.size(), ys = y_bytes_.size();
    const auto at_once = static_cast<std::size_t>(trips);
    const std::size_t slices = xs + ys > 0 ? at_once : 0, copied = ys > 0 ? at_once : 0;
    InlineVector<const void*, 48> in(xs_at + at_once * xs);
    InlineVector<void*, 48> out(task_.carry + at_once * ys);
    std::copy_n(call.in.begin(), first, in.begin());
    for (; trip + trips <= task_.length; trip += trips) {
      for (std::size_t k = 0; k < task_.carry; ++k) {
        in[first + k] = carry.now(k);
        out[k] = carry.next(k);
      }
      for (std::size_t t = 0; t < slices; ++t) {
        const std::int64_t i = index(trip + static_cast<std::int64_t>(t));
        for (std::size_t x = 0; x < xs; ++x)
          in[xs_at + t * xs + x] =
              static_cast<const std::byte*>(call.in[xs_at + x]) + i * x_bytes_[x];
        for (std::size_t y = 0; y < ys; ++y) {
          const std::int64_t place = y_places_[t * ys + y];
          out[task_.carry + t * ys + y] = place >= 0 ? scratch + place : stacked(call, y, i);
        }
      }
      program.run(caller, in.span(), out.span(), scratch + body_at_);
      for (std::size_t t = 0; t < copied; ++t) {
        const std::int64_t i = index(trip + static_cast<std::int64_t>(t));
        for (std::size_t y = 0; y < ys; ++y) {
          const std::int64_t place = y_places_[t * ys + y];
          if (place >= 0) copy_bytes(stacked(call, y, i), scratch + place, y_bytes_[y]);
        }
      }
      carry.advance(program);
    }
    return trip;
  }
  std::int64_t index(std::int64_t trip) const {
    return task_.reverse ? task_.length - 1 - trip : trip;
  }
  std::byte* stacked(const KernelCall& call, std::size_t y, std::int64_t i) const {
    return static_cast<std::byte*>(call.out[task_.carry + y]) + i * y_bytes_[y];
  }

  const ScanTask task_;
  const CarryLayout layout_;
  std::vector<std::int64_t> x_bytes_, y_bytes_, y_places_;
  std::int64_t body_at_ = 0;
};

class WhileFlow final : public FlowTask {
 public:
  explicit WhileFlow(WhileTask task)
      : task_(std::move(task)),
        layout_(task_.body->jaxpr(), task_.body_consts,
                task_.body->jaxpr().binders.size() - task_.body_consts) {}

  void run(const KernelCall& call, const TaskProgram::Caller& caller) const override {
    auto* scratch = static_cast<std::byte*>(call.scratch);
    const std::size_t tests = task_.test_consts, first = tests + task_.body_consts;
    Carry carry(layout_, call.out.size(), scratch);
    for (std::size_t k = 0; k < carry.size(); ++k)
      copy_bytes(carry.now(k), call.in[first + k], layout_.bytes(k));
    std::vector<const void*> test_in(call.in.begin(), call.in.begin() + std::ptrdiff_t(tests));
    std::vector<const void*> body_in(call.in.begin() + std::ptrdiff_t(tests),
                                     call.in.begin() + std::ptrdiff_t(first));
    test_in.resize(tests + carry.size());
    body_in.resize(task_.body_consts + carry.size());
    std::vector<void*> out(carry.size());
    std::byte* const answer = scratch + layout_.end();
    std::byte* const inside = answer + kFlowAlignment;
    for (;;) {
      for (std::size_t k = 0; k < carry.size(); ++k) {
        test_in[tests + k] = body_in[task_.body_consts + k] = carry.now(k);
        out[k] = carry.next(k);
      }
      void* const answers[] = {answer};
      task_.test->run(caller, test_in, answers, inside);
      if (*answer == std::byte{0}) break;
      task_.body->run(caller, body_in, out, inside);
      carry.advance(*task_.body);
    }
    for (std::size_t k = 0; k < carry.size(); ++k)
      copy_bytes(call.out[k], carry.now(k), layout_.bytes(k));
  }

  std::int64_t scratch_bytes() const override {
    return layout_.end() + kFlowAlignment +
           std::max(task_.test->scratch_bytes(), task_.body->scratch_bytes());
  }
  Cost cost() const override {
    const Cost a = task_.test->cost(), b = task_.body->cost();
    return {a.flops + b.flops, a.bytes + b.bytes};
  }
  std::string text() const override { return "while"; }
  std::vector<const Jaxpr*> programs() const override {
    return {&task_.test->jaxpr(), &task_.body->jaxpr()};
  }

 private:
  const WhileTask task_;
  const CarryLayout layout_;
};

class CondFlow final : public FlowTask {
 public:
  explicit CondFlow(CondTask task) : task_(std::move(task)) {}

  void run(const KernelCall& call, const TaskProgram::Caller& caller) const override {
    const auto last = static_cast<std::int64_t>(task_.branches.size()) - 1;
    const std::int64_t index = integer_at(call.in[0], call.in_types[0].dtype());
    const auto chosen = static_cast<std::size_t>(std::clamp<std::int64_t>(index, 0, last));
    task_.branches[chosen]->run(caller, call.in.subspan(1), call.out,
                                static_cast<std::byte*>(call.scratch));
  }
  // The number of parts is chosen before it is known which branch will run.
  int parts(const KernelCall& call, int workers) const override {
    int most = 1;
    for (const auto& b : task_.branches)
      most = std::max(most, b->parts(call.in.subspan(1), call.out, workers));
    return most;
  }

  std::int64_t scratch_bytes() const override {
    std::int64_t most = 0;
    for (const auto& b : task_.branches) most = std::max(most, b->scratch_bytes());
    return most;
  }
  Cost cost() const override {
    Cost most;
    for (const auto& b : task_.branches) {
      most.flops = std::max(most.flops, b->cost().flops);
      most.bytes = std::max(most.bytes, b->cost().bytes);
    }
    return most;
  }
  std::string text() const override {
    return "one of " + std::to_string(task_.branches.size()) + " branches";
  }
  std::vector<const Jaxpr*> programs() const override {
    std::vector<const Jaxpr*> all;
    for (const auto& b : task_.branches) all.push_back(&b->jaxpr());
    return all;
  }

 private:
  const CondTask task_;
};

const FlowTaskParams& of(const Params& params) { return params_as<FlowTaskParams>(params); }

void eval_flow(Types, const Params& params, std::span<ShapedArray> out) {
  std::copy(of(params).results.begin(), of(params).results.end(), out.begin());
}
int flow_results(Types, const Params& params) {
  return static_cast<int>(of(params).results.size());
}
// Keeps the types of the equation: eval_flow has given them their axes.
void keep_axes(Types, const Params&, const detail::AxisEnv&, std::span<ShapedArray>) {}
Cost flow_cost(Types, const Params& params, Types) { return of(params).task->cost(); }

}  // namespace

std::shared_ptr<const FlowTask> make_flow_task(ScanTask task) {
  return std::make_shared<ScanFlow>(std::move(task));
}
std::shared_ptr<const FlowTask> make_flow_task(WhileTask task) {
  return std::make_shared<WhileFlow>(std::move(task));
}
std::shared_ptr<const FlowTask> make_flow_task(CondTask task) {
  return std::make_shared<CondFlow>(std::move(task));
}

std::vector<int> loop_owned(std::size_t binders, std::size_t first_carry, std::size_t carry) {
  std::vector<int> owned(binders, -1);
  for (std::size_t k = 0; k < carry; ++k) owned[first_carry + k] = static_cast<int>(k);
  return owned;
}

void FlowTaskParams::visit(ParamVisitor& v) const {
  v.value("of", std::string_view(task->text()));
  for (const Jaxpr* program : task->programs()) v.value("program", *program);
}

void run_flow_task(const KernelCall& call) {
  const FlowTaskParams& p = of(call.params);
  p.task->run(call,
              {p.on, call.position, OpSite::next_number(), call.native, call.part, call.parts});
}
std::int64_t flow_task_scratch(const KernelCall& call) {
  return of(call.params).task->scratch_bytes();
}

int branch_task_parts(const KernelCall& call, int workers) {
  return of(call.params).task->parts(call, workers);
}

namespace {

constexpr Primitive make(const char* name) {
  Primitive p = planned_primitive(name);
  p.abstract_eval = eval_flow;
  p.result_count = flow_results;
  p.variance = keep_axes;
  p.cost = flow_cost;
  p.no_kernel = "a pass makes it for devices that run host code alone";
  return p;
}

}  // namespace

constinit Primitive flow_task_p = make("flow_task");
constinit Primitive branch_task_p = make("branch_task");

void register_flow_task() {
  register_primitive(flow_task_p);
  register_primitive(branch_task_p);
}

}  // namespace shmap
