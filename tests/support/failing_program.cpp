#include "tests/support/failing_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "core/base/fault.h"
#include "core/device/runtime.h"
#include "shmap/shmap.h"
#include "tests/support/fail_at.h"
#include "tests/support/late_tasks.h"

namespace shmap::test {
namespace {

using Arrays = std::vector<Array>;
using Outcomes = std::vector<Outcome>;

constexpr std::size_t kMostArrays = 24;
constexpr std::int64_t kExtents[] = {64, 2048, 1 << 14};

bool is_cpu() { return devices()[0].kind() == DeviceKind::cpu; }

const std::vector<FailingOp>& all_ops() {
  static const std::vector<FailingOp> ops = failing_ops(is_cpu());
  return ops;
}

// The text of the error where f throws one.
std::optional<std::string> error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return std::nullopt;
}

bool has_one_of(const std::string& text, const std::set<std::string>& errors) {
  return std::ranges::any_of(errors,
                             [&](const std::string& e) { return text.find(e) != text.npos; });
}

}  // namespace

void wait_for_all() {
  while (const auto error = error_of([] { runtime().backend().synchronize(); }))
    EXPECT_TRUE(has_one_of(
        *error, {"poison ", "late ", "nobody's.", "fault injected", "bad_alloc", "memory"}))
        << *error;
}

class FailingProgram::Impl {
 public:
  static constexpr std::size_t kGiven = 4;  // values of a plan before those of its steps
  Impl(unsigned seed, std::size_t first_plan, bool alone, std::vector<Held> arrays)
      : engine_(seed * 7919u + 29u),
        usual_(pick(15)),
        first_plan_(first_plan),
        alone_(alone),
        arrays_(std::move(arrays)) {}

  void run() {
    make_plan(first_plan_);
    make_plan(first_plan_ + 1);
    const std::size_t length = 25 + pick(30);
    for (std::size_t k = 0; k < length && !::testing::Test::HasFailure(); ++k) {
      step();
      // One that may capture what failed or is pending.
      if (k == length / 3) make_plan(first_plan_ + 2);
    }
    while (!arrays_.empty() && !::testing::Test::HasFailure()) read(arrays_, arrays_.size() - 1);
    while (!keys_.empty() && !::testing::Test::HasFailure()) read(keys_, keys_.size() - 1);
    gate_.reset();
  }

  std::vector<Held> some_arrays() {
    for (int k = 0; k < 3; ++k) make_array();
    fail();
    open();
    return std::exchange(arrays_, {});
  }

  const std::vector<WantedLine>& prints() const { return prints_; }
  std::string text() const {
    std::string all;
    for (const std::string& line : log_) all += "\n  " + line;
    return all;
  }

 private:
  struct Step {
    const FailingOp* op;
    std::vector<std::size_t> operands;
  };
  struct Plan {
    std::size_t number;
    std::vector<Step> steps;
    // Of the values: two arrays, a key, the captured key, and the steps'.
    std::vector<std::size_t> results;
    Held captured;
    bool prints = false, waits = false;
    int tasks = 0;
    std::function<Arrays(Arrays)> call;
  };

  std::size_t pick(std::size_t n) { return engine_() % n; }
  bool coin() { return pick(2) == 0; }
  bool seldom() { return pick(8) == 0; }

  void step() {
    while (arrays_.size() < 4) make_array();
    while (keys_.size() < 2) make_key();
    while (arrays_.size() > kMostArrays) drop(arrays_);
    while (keys_.size() > 8) drop(keys_);
    switch (pick(20)) {
      case 0:
        return make_array();
      case 1:
        return make_key();
      case 2:
        return is_cpu() ? make_late(/*fails=*/false) : make_array();
      case 3:
      case 4:
        return fail();
      case 5:
        return drop(arrays_);
      case 6:
        return open();
      case 7:
        if (gate_ && coin()) return;
        return read(coin() ? arrays_ : keys_, std::nullopt);
      case 8:
        return stall();
      case 9:
        arrays_.push_back(arrays_[pick(arrays_.size())]);
        return note("another handle of an array");
      case 10:
      case 11:
      case 12:
      case 13: {
        const Plan& plan = plans_[pick(plans_.size())];
        // Of many calls that find the memory of earlier results free, the later ones copy their
        // inputs to fixed places.
        const bool many = pick(4) == 0;
        for (std::size_t calls = many ? 18 : 1 + pick(3);
             calls > 0 && !::testing::Test::HasFailure(); --calls) {
          const std::size_t before = arrays_.size();
          call(plan);
          while (many && arrays_.size() > before && pick(4) != 0) arrays_.pop_back();
          if (arrays_.size() < 4) make_array();
          if (pick(4) == 0) pick(3) == 0 ? fail() : make_array();
        }
        return;
      }
      default:
        return call_eagerly();
    }
  }

  void note(const std::string& what) { log_.push_back(what); }
  std::string name(const Held& h) {
    return (h.outcome.good()     ? "good"
            : h.outcome.computed ? "doubtful"
            : h.outcome.in_part  ? "failed in part"
                                 : "failed") +
           std::string(" ") + std::to_string(h.extent());
  }

  // ---- arrays

  std::vector<std::int32_t> random_numbers(std::int64_t extent) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(extent));
    const std::uint32_t start = engine_();
    for (std::size_t e = 0; e < numbers.size(); ++e)
      numbers[e] = static_cast<std::int32_t>((start + e * e * 31 + e) % 2003) - 1000;
    return numbers;
  }

  // Most arrays are alike, so that the calls of a plan meet the same program again and again.
  std::int64_t random_extent() { return kExtents[(usual_ + (seldom() ? pick(3) : 0)) % 3]; }
  NamedSharding random_sharding() {
    const P specs[] = {P(axes("i", "j")), P("i"), P("j"), P(), P(axes("j", "i"))};
    return {failing_mesh(), specs[(usual_ / 3 + (seldom() ? pick(5) : 0)) % 5]};
  }

  Held fresh_array() {
    Held made;
    made.outcome.numbers = random_numbers(random_extent());
    made.array =
        device_put(array<std::int32_t>(made.outcome.numbers, {made.extent()}), random_sharding());
    return made;
  }

  void make_array() {
    arrays_.push_back(fresh_array());
    note("an array of " + std::to_string(arrays_.back().extent()));
  }

  void make_key() {
    Held made;
    made.outcome.numbers = {static_cast<std::int32_t>(pick(64))};
    made.array = array<std::int32_t>(made.outcome.numbers, {1});
    if (coin()) made.array = device_put(made.array, NamedSharding(failing_mesh(), P()));
    note("key " + std::to_string(made.outcome.numbers[0]));
    keys_.push_back(std::move(made));
  }

  // ---- pending and failing tasks

  Gate& gate() {
    if (!gate_) {
      gate_ = std::make_unique<Gate>();
      note("close the gate");
    }
    return *gate_;
  }

  void open() {
    if (gate_) note("open the gate");
    gate_.reset();
  }

  // Opens the gate, and lets those of other programs be opened, where the tasks behind them could
  // leave no room for more.
  void make_room(int tasks) {
    tasks_ += tasks;
    if (tasks_ <= (alone_ ? 3000 : 1500)) return;
    open();
    if (!alone_) wait_for_all();
    tasks_ = tasks;
  }

  // An array that is computed, or fails, when the gate opens.
  void make_late(bool fails) {
    Held made = fresh_array();
    made.array = made.array + 0;
    // Of several copies of a block those that are read may be the good ones.
    const PartitionSpec spec = made.array.sharding().spec();
    const bool some = (spec == P(axes("i", "j")) || spec == P(axes("j", "i"))) && coin();
    const std::string error = fails ? "late " + std::to_string(++failures_) + "." : "";
    const std::size_t tasks =
        gate().delay(made.array, coin() ? StreamRole::comm : StreamRole::compute, error, some);
    if (fails) {
      made.outcome.computed = false;
      made.outcome.errors.insert(error);
      made.outcome.in_part = some && tasks > 1;
    }
    note("late: " + name(made) + " " + error);
    arrays_.push_back(std::move(made));
  }

  // A task that holds up a stream, and whose failure concerns nobody.
  void stall() {
    if (!is_cpu()) return;
    const std::size_t device = pick(8);
    const bool comm = coin();
    const std::string error = coin() ? "nobody's." : "";
    const StoredNode* const node = stored_of(arrays_[0].array);
    const detail::MeshImpl& mesh = *node->mesh;
    const LocalDevice& local = mesh.local(
        static_cast<std::uint32_t>(device % static_cast<std::size_t>(mesh.local_count())));
    gate().close(comm ? local.comm : local.compute, error);
    note("stall device " + std::to_string(device) + (comm ? ", comm " : " ") + error);
  }

  void fail() {
    if (alone_ && !gate_ && runs_at_once() && (!is_cpu() || coin())) return fail_by_fault();
    if (is_cpu()) make_late(/*fails=*/true);
    if (coin()) open();
  }

  // The kernels of this operation fail. Where tasks run later, others that run meanwhile would fail
  // too.
  void fail_by_fault() {
    Held from = arrays_[pick(arrays_.size())];
    const fault::Scoped fault("kernel:throw");
    Held made{from.array * 2 + 0, from.outcome};
    made.outcome.computed = false;
    made.outcome.in_part = false;
    made.outcome.errors.insert("fault injected");
    note("fault: " + name(made));
    arrays_.push_back(std::move(made));
  }
  static bool runs_at_once() {
    const char* executor = std::getenv("SHMAP_EXECUTOR");
    return !is_cpu() || (executor && std::string(executor) == "inline");
  }

  // ---- operations

  // Takes an array of that extent, or a key: one that stays, or one that is given up.
  Held operand(std::vector<Held>& from, std::int64_t extent, std::string& text) {
    std::vector<std::size_t> fitting;
    for (std::size_t k = 0; k < from.size(); ++k)
      if (from[k].extent() == extent) fitting.push_back(k);
    std::size_t k = fitting[pick(fitting.size())];
    if (!from[k].outcome.good() && coin()) k = fitting[pick(fitting.size())];
    text += (text.empty() ? "" : ", ") + name(from[k]);
    if (pick(4) != 0) return from[k];
    text += " given up";
    Held taken = std::move(from[k]);
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(k));
    if (fitting.size() == 1) from.push_back({taken.array, taken.outcome});
    return taken;
  }

  struct Operands {
    Arrays arrays;
    Outcomes outcomes;
    std::string text;
  };
  Operands operands(std::size_t arrays, std::size_t keys) {
    Operands all;
    const std::int64_t extent = arrays_[pick(arrays_.size())].extent();
    for (std::size_t k = 0; k < arrays + keys; ++k) {
      Held held = k < arrays ? operand(arrays_, extent, all.text) : operand(keys_, 1, all.text);
      all.arrays.push_back(std::move(held.array));
      all.outcomes.push_back(std::move(held.outcome));
    }
    return all;
  }

  // Calls f, sometimes with an allocation that fails, on a device or on the host. Returns whether f
  // returned. may_throw: the errors of operands that f may throw. To `errors` come those with which
  // tasks of the call may have failed for want of memory.
  bool attempt(const std::function<void()>& f, const std::set<std::string>& may_throw,
               std::set<std::string>& errors) {
    std::optional<fault::Scoped> device_fails;
    std::optional<FailAt> host_fails;
    std::size_t which = alone_ ? pick(16) : 16;
    // The libraries of a GPU, and its simulator, may not survive a failure of operator new.
    if (which == 2 && !is_cpu()) which = 16;
    if (which < 2) {
      const std::string nth = std::to_string(1 + pick(12));
      note("  with allocation " + nth + " failing");
      device_fails.emplace("allocate#" + nth + ":oom");
    } else if (which == 2) {
      // Tasks of other calls would meet the failure too.
      open();
      wait_for_all();
      const auto nth = static_cast<long>(1 + pick(std::size_t{2} << pick(10)));
      note("  with operator new " + std::to_string(nth) + " failing");
      host_fails.emplace(nth);
    }
    std::optional<std::string> error;
    bool out_of_memory = false;
    try {
      f();
    } catch (const OutOfMemory& e) {
      out_of_memory = true;
      host_fails.reset();
      error = e.what();
    } catch (const std::exception& e) {
      host_fails.reset();
      error = e.what();
    }
    const bool host_failed = which == 2 && one_failed;
    host_fails.reset();
    if (host_failed) errors.insert({"bad_alloc", "memory"});
    if (!error) return true;
    EXPECT_TRUE(host_failed || (out_of_memory && device_fails) || has_one_of(*error, may_throw))
        << "threw: " << *error;
    note("  threw " + error->substr(0, error->find('\n')));
    return false;
  }

  void call_eagerly() {
    const FailingOp& op = all_ops()[pick(all_ops().size())];
    if (op.waits) open();
    make_room(op.tasks);
    Operands in = operands(op.arrays, op.keys);
    note(op.name + "(" + in.text + ")");
    Held made;
    made.outcome = op.plain(in.outcomes);
    const std::set<std::string> may_throw =
        op.waits ? made.outcome.errors : std::set<std::string>();
    std::set<std::string> more;
    if (!attempt([&] { made.array = op.ours(std::move(in.arrays)); }, may_throw, more)) return;
    made.outcome.in_part |= !more.empty() && made.outcome.computed;
    made.outcome.errors.merge(more);
    log_.back() += " -> " + name(made);
    (op.makes_key ? keys_ : arrays_).push_back(std::move(made));
  }

  // ---- plans: functions of two arrays and a key, with another key that they capture

  void make_plan(std::size_t number) {
    Plan plan;
    plan.number = number;
    plan.prints = pick(3) == 0;
    std::vector<std::size_t> arrays{0, 1}, keys{3, 2};
    make_key();
    plan.captured = keys_[pick(keys_.size())];
    const std::size_t length = 1 + pick(5);
    std::string text = "plan " + std::to_string(number) + (plan.prints ? ", prints" : "") + ":";
    while (plan.steps.size() < length) {
      const FailingOp& op = all_ops()[pick(all_ops().size())];
      Step step{&op, {}};
      text += " %" + std::to_string(kGiven + plan.steps.size()) + "=" + op.name + "(";
      for (std::size_t k = 0; k < op.arrays + op.keys; ++k) {
        const std::vector<std::size_t>& from = k < op.arrays ? arrays : keys;
        // The latest values are used most.
        step.operands.push_back(
            from[from.size() - 1 - pick(std::min<std::size_t>(from.size(), 3))]);
        text += "%" + std::to_string(step.operands.back()) + " ";
      }
      text.back() = ')';
      plan.tasks += op.tasks;
      // A program over several meshes is interpreted, and its prints wait.
      plan.waits |= op.waits || (plan.prints && op.several_meshes);
      (op.makes_key ? keys : arrays).push_back(kGiven + plan.steps.size());
      plan.steps.push_back(std::move(step));
    }
    for (std::size_t v = 0; v < kGiven + length; ++v)
      if (v + 1 == kGiven + length || (v < kGiven ? seldom() : coin())) plan.results.push_back(v);
    text += ", %3 is " + name(plan.captured) + ", returns";
    for (const std::size_t v : plan.results) text += " %" + std::to_string(v);
    note(text);
    const auto body = [steps = plan.steps, results = plan.results, prints = plan.prints, number,
                       key = plan.captured.array](Arrays values) {
      values.push_back(key);
      if (prints) debug::print("plan {}: {}", number, values[2]);
      for (const Step& step : steps) {
        Arrays in;
        for (const std::size_t v : step.operands) in.push_back(values[v]);
        values.push_back(step.op->ours(std::move(in)));
      }
      Arrays out;
      for (const std::size_t v : results) out.push_back(values[v]);
      return out;
    };
    plan.call = [f = jit(body)](Arrays in) { return f(std::move(in)); };
    plans_.push_back(std::move(plan));
  }

  void call(const Plan& plan) {
    if (arrays_.empty() || keys_.empty()) return;
    if (plan.waits) open();
    make_room(plan.tasks);
    Operands in = operands(2, 1);
    note("plan " + std::to_string(plan.number) + "(" + in.text + ")");
    Outcomes values = in.outcomes;
    values.push_back(plan.captured.outcome);
    for (const Step& step : plan.steps) {
      Outcomes of_step;
      for (const std::size_t v : step.operands) of_step.push_back(values[v]);
      values.push_back(step.op->plain(of_step));
    }
    // The tasks of a plan are launched together, and fail together.
    std::set<std::string> errors;
    for (const Outcome& v : values) errors.insert(v.errors.begin(), v.errors.end());
    Arrays results;
    const bool returned = attempt([&] { results = plan.call(std::move(in.arrays)); },
                                  plan.waits ? errors : std::set<std::string>(), errors);
    if (plan.prints && values[2].computed)
      prints_.push_back({plan.number,
                         "plan " + std::to_string(plan.number) + ": [" +
                             std::to_string(values[2].numbers[0]) + "]",
                         returned && errors.empty()});
    if (!returned) return;
    for (std::size_t k = 0; k < results.size(); ++k) {
      Outcome& v = values[plan.results[k]];
      if (v.errors != errors) {
        v.in_part = v.computed || v.in_part;
        v.errors = errors;
      }
      Held made{std::move(results[k]), v};
      log_.back() += (k == 0 ? " -> " : ", ") + name(made);
      (made.extent() == 1 ? keys_ : arrays_).push_back(std::move(made));
    }
  }

  // ---- ends

  void drop(std::vector<Held>& from) {
    std::size_t k = pick(from.size());
    if (from[k].outcome.good()) k = pick(from.size());
    note("drop " + name(from[k]));
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(k));
  }

  // Reads an array, or waits for it, and compares it with what is known; the last reading drops it.
  void read(std::vector<Held>& from, std::optional<std::size_t> last) {
    open();
    const std::size_t k = last.value_or(pick(from.size()));
    Held& held = from[k];
    note("read " + name(held));
    std::vector<std::int32_t> got;
    const bool waits_only = !last && coin();
    const std::optional<std::string> error = error_of([&] {
      if (waits_only) {
        held.array.block_until_ready();
      } else {
        got = held.array.to_vector<std::int32_t>();
      }
    });
    if (error) {
      EXPECT_TRUE(has_one_of(*error, held.outcome.errors))
          << "failed with: " << *error << "\nwanted: " << wanted(held.outcome);
      // Another copy of a block may be good.
      if (!held.outcome.in_part) held.outcome.computed = false;
    } else {
      EXPECT_TRUE(held.outcome.computed) << "did not fail; wanted: " << wanted(held.outcome);
      if (!waits_only) {
        EXPECT_TRUE(got == held.outcome.numbers) << "other numbers";
      }
      if (waits_only || !held.outcome.in_part)
        held.outcome = {held.outcome.numbers, true, {}, false};
    }
    if (last) from.erase(from.begin() + static_cast<std::ptrdiff_t>(k));
  }

  static std::string wanted(const Outcome& outcome) {
    std::string text = outcome.computed ? "no failure" : "";
    for (const std::string& e : outcome.errors) text += (text.empty() ? "" : ", or ") + e;
    return text;
  }

  std::mt19937 engine_;
  const std::size_t usual_;  // the extent and the sharding of most arrays
  const std::size_t first_plan_;
  const bool alone_;
  std::vector<Plan> plans_;
  std::vector<Held> arrays_, keys_;
  std::unique_ptr<Gate> gate_;  // closed; null where none is
  int tasks_ = 0;               // about how many may wait for a gate
  int failures_ = 0;
  std::vector<WantedLine> prints_;
  std::vector<std::string> log_;
};

FailingProgram::FailingProgram(unsigned seed, std::size_t first_plan, bool alone,
                               std::vector<Held> arrays)
    : impl_(std::make_unique<Impl>(seed, first_plan, alone, std::move(arrays))) {}
FailingProgram::~FailingProgram() = default;
void FailingProgram::run() { impl_->run(); }
std::vector<Held> FailingProgram::some_arrays() { return impl_->some_arrays(); }
const std::vector<WantedLine>& FailingProgram::prints() const { return impl_->prints(); }
std::string FailingProgram::text() const { return impl_->text(); }

}  // namespace shmap::test
