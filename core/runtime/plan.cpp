#include "core/runtime/plan.h"

#include <algorithm>

#include "core/base/no_user_code.h"
#include "core/ir/node.h"
#include "core/runtime/launch.h"
#include "core/runtime/reshard.h"
#include "core/runtime/step.h"

namespace shmap {

namespace {

// Numbers the variables of a jaxpr, and finds the last mention of each.
class Slots {
 public:
  explicit Slots(const Jaxpr& jaxpr) {
    for (std::size_t e = 0; e < jaxpr.eqns.size(); ++e)
      for (const Atom& a : jaxpr.eqns[e].in)
        if (!a.is_literal()) last_[a.var()] = e;
    for (const Atom& a : jaxpr.outs)
      if (!a.is_literal()) last_[a.var()] = kResult;
  }
  static constexpr std::size_t kResult = ~std::size_t{0};

  // -1 where no step reads the value.
  int of(const Var* v) {
    if (!last_.count(v)) return -1;
    const auto [it, first] = slots_.try_emplace(v, next_);
    if (first) ++next_;
    return it->second;
  }
  int fresh() { return next_++; }
  std::size_t last(const Var* v) const { return last_.at(v); }
  std::size_t size() const { return static_cast<std::size_t>(next_); }

 private:
  VarMap<std::size_t> last_;
  VarMap<int> slots_;
  int next_ = 0;
};

PlanStep make_step(const Eqn& eqn, std::size_t index, const detail::AxisEnv& env, Slots& slots) {
  PlanStep step{&eqn, {}, 0, {}, {}, {}, 0};
  for (std::size_t i = 0; i < eqn.in.size(); ++i) {
    const Atom& a = eqn.in[i];
    step.in_types.push_back(a.type());
    if (a.is_literal()) {
      step.in.push_back(~static_cast<int>(i));
      continue;
    }
    step.in.push_back(slots.of(a.var()));
    bool again = false;  // whether a later operand of this equation is the same value
    for (std::size_t k = i + 1; k < eqn.in.size(); ++k) again = again || eqn.in[k] == a;
    if (slots.last(a.var()) == index && !again && i < 32) step.last |= 1u << i;
  }
  for (const VarRef& v : eqn.out) {
    step.out.push_back(slots.of(v.get()));
    step.out_types.push_back(v->type);
    step.varying |= v->type.axes().mask_in(env);
  }
  return step;
}

std::string indented(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    out += "  " + text.substr(at, end - at);
    at = end;
  }
  return out;
}

// A segment of these steps, of which `end` is the number of the next step.
std::unique_ptr<Segment> make_segment(const detail::MeshImpl* mesh, std::span<PlanStep> steps,
                                      std::size_t end, const Slots& slots) {
  std::vector<int> in, out;
  std::vector<bool> last_in, known(slots.size(), false);  // known: read before, or made here
  const auto note = [&known](int slot) {
    const auto at = static_cast<std::size_t>(slot);
    const bool is_new = !known[at];
    known[at] = true;
    return is_new;
  };
  for (const PlanStep& step : steps) {
    for (std::size_t i = 0; i < step.in.size(); ++i) {
      if (step.in[i] < 0 || !note(step.in[i])) continue;
      in.push_back(step.in[i]);
      const std::size_t last = slots.last(step.eqn->in[i].var());
      last_in.push_back(last != Slots::kResult && last < end);
    }
    for (std::size_t o = 0; o < step.out.size(); ++o) {
      if (step.out[o] < 0) continue;
      note(step.out[o]);
      const std::size_t last = slots.last(step.eqn->out[o].get());
      if (last == Slots::kResult || last >= end) out.push_back(step.out[o]);
    }
  }
  return std::make_unique<Segment>(mesh,
                                   std::vector<PlanStep>(std::make_move_iterator(steps.begin()),
                                                         std::make_move_iterator(steps.end())),
                                   std::move(in), std::move(out), std::move(last_in));
}

// Whether the equation, or one of a program in it, is interpreted by a function of the user.
bool calls_user(const Eqn& eqn) {
  if (eqn.primitive->user != nullptr && eqn.primitive->interpret != nullptr) return true;
  for (const Jaxpr* jaxpr : inner_jaxprs(*eqn.params))
    if (std::any_of(jaxpr->eqns.begin(), jaxpr->eqns.end(), calls_user)) return true;
  return false;
}

// True if the host decides what runs. False if devices can decide it within one task.
bool is_control(const PlanStep& step) {
  return step.eqn->primitive->interpret && !step.eqn->primitive->group;
}

}  // namespace

Plan::Plan(const detail::MeshImpl* mesh, JaxprRef jaxpr, std::vector<Array> consts,
           const ProgramMark& mark, RunControl run_control)
    : mesh_(mesh), run_control_(run_control), jaxpr_(std::move(jaxpr)), mark_(mark) {
  Slots slots(*jaxpr_);
  for (std::size_t i = 0; i < jaxpr_->binders.size(); ++i) {
    const int slot = slots.of(jaxpr_->binders[i].get());
    if (i >= consts.size()) {
      arg_slots_.push_back(slot);
    } else if (slot >= 0) {
      constants_.push_back(std::move(consts[i]));
      constant_slots_.push_back(slot);
    }
  }
  std::vector<PlanStep> all;
  for (std::size_t e = 0; e < jaxpr_->eqns.size(); ++e)
    all.push_back(make_step(jaxpr_->eqns[e], e, *mesh_->env(), slots));
  for (const Atom& a : jaxpr_->outs) {
    if (!a.is_literal()) {
      out_slots_.push_back(slots.of(a.var()));
      continue;
    }
    out_slots_.push_back(slots.fresh());
    constants_.push_back(as_stored(a.literal(), mesh_));
    constant_slots_.push_back(out_slots_.back());
  }
  for (auto slot = out_slots_.begin(); slot != out_slots_.end(); ++slot)
    out_last_.push_back(std::find(slot + 1, out_slots_.end(), *slot) == out_slots_.end());
  slot_count_ = slots.size();

  for (std::size_t begin = 0; begin < all.size();) {
    if (is_control(all[begin])) {
      const bool user = calls_user(*all[begin].eqn);
      stages_.push_back({nullptr, std::move(all[begin]), nullptr, user});
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < all.size() && !is_control(all[end])) ++end;
    stages_.push_back({make_segment(mesh_, std::span(all).subspan(begin, end - begin), end, slots),
                       {},
                       nullptr,
                       false});
    begin = end;
  }
  register_idle();
}

Plan::~Plan() { forget_idle(); }

bool Plan::give_up() noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (runner_.load(std::memory_order_relaxed) != std::this_thread::get_id() && !lock.try_lock())
    return false;
  bool any = false;
  for (Stage& stage : stages_)
    if (stage.segment) any = stage.segment->give_up_memory() || any;
  return any;
}

void Plan::run_control(Stage& stage, std::vector<Array>& values) const {
  const PlanStep& step = stage.control;
  std::vector<Array> in;
  for (std::size_t i = 0; i < step.in.size(); ++i) {
    const int slot = step.in[i];
    if (slot < 0) {
      in.push_back(step.eqn->in[i].literal());
      continue;
    }
    Array& value = values[static_cast<std::size_t>(slot)];
    in.push_back(as_block(step.is_last(i) ? std::move(value) : value, step.in_types[i]));
  }
  std::vector<Array> out(step.out.size());
  run_control_(*mesh_, *step.eqn, in, out, stage.state);
  for (std::size_t o = 0; o < out.size(); ++o)
    if (step.out[o] >= 0) values[static_cast<std::size_t>(step.out[o])] = std::move(out[o]);
}

// A run of the plan on this thread, which holds the plan's mutex.
class Plan::Running {
 public:
  explicit Running(Plan& plan) : plan_(plan), lock_(plan.mutex_) {
    begin();
    values = std::move(plan_.values_);  // for their memory
    values.resize(plan_.slot_count_);
  }
  // Also where an exception ends the run.
  ~Running() {
    values.clear();
    plan_.values_ = std::move(values);
    end();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Calls run() without the mutex.
  template <class Run>
  void unlocked(const Run& run) {
    struct Unlocked {
      explicit Unlocked(Running& r) : running(r) {
        running.end();
        running.lock_.unlock();
      }
      ~Unlocked() {
        running.lock_.lock();
        running.begin();
      }
      Unlocked(const Unlocked&) = delete;
      Unlocked& operator=(const Unlocked&) = delete;
      Running& running;
    } const scope(*this);
    run();
  }

  std::vector<Array> values;  // by slot

 private:
  void begin() noexcept {
    NoUserCode::begin();
    // (No other order is needed: give_up() compares with its own thread alone.)
    plan_.runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  void end() noexcept {
    plan_.runner_.store(std::thread::id(), std::memory_order_relaxed);
    NoUserCode::end();
  }

  Plan& plan_;
  std::unique_lock<std::mutex> lock_;
};

std::vector<Array> Plan::run(std::vector<Array> args) {
  detail::refuse_in_task("a function under jit");  // its own plan may be what runs the task
  Running running(*this);
  std::vector<Array>& values = running.values;
  for (std::size_t i = 0; i < constants_.size(); ++i)
    values[static_cast<std::size_t>(constant_slots_[i])] = constants_[i];
  for (std::size_t i = 0; i < args.size(); ++i)
    if (arg_slots_[i] >= 0) values[static_cast<std::size_t>(arg_slots_[i])] = std::move(args[i]);
  const ProgramScope scope(mark_);
  for (Stage& stage : stages_) {
    if (stage.segment) {
      stage.segment->run(values);
    } else if (stage.calls_user) {
      running.unlocked([&] { run_control(stage, values); });
    } else {
      run_control(stage, values);
    }
  }
  args.clear();  // reuses the vector's memory for the results
  args.reserve(out_slots_.size());
  for (std::size_t o = 0; o < out_slots_.size(); ++o) {
    Array& value = values[static_cast<std::size_t>(out_slots_[o])];
    args.push_back(out_last_[o] ? std::move(value) : value);
  }
  return args;
}

std::string Plan::text() const {
  std::lock_guard lock(mutex_);
  std::string text = "plan on " + to_string(Mesh(mesh_)) + "\n";
  const auto list = [&](const char* what, const std::vector<int>& slots) {
    text += std::string("  ") + what;
    for (int slot : slots) text += slot < 0 ? " _" : " %" + std::to_string(slot);
    text += "\n";
  };
  if (!constant_slots_.empty()) list("constants:", constant_slots_);
  list("arguments:", arg_slots_);
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    text += "segment " + std::to_string(i);
    if (stage.segment) {
      text += "\n" + stage.segment->text();
      continue;
    }
    text += ", which the host decides\n  " + step_text(stage.control) + "\n";
    if (stage.state) text += indented(stage.state->text());
  }
  list("results:", out_slots_);
  return text;
}

}  // namespace shmap
