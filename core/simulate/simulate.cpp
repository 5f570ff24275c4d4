#include "shmap/simulate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/array/sharding.h"
#include "core/compiler/lowering/closed_program.h"
#include "core/compiler/passes/lifetimes.h"
#include "core/ir/nesting.h"
#include "core/simulate/placed_mesh.h"
#include "core/simulate/prepared_programs.h"
#include "core/simulate/program_memory.h"
#include "core/simulate/timeline.h"
#include "core/transforms/control_flow/flow_primitives.h"

namespace shmap {

namespace {

using detail::Timeline;

// Trips of a loop are simulated one by one until a trip takes as long as the one before it, up to
// this many trips.
constexpr std::int64_t kMostTrips = 64;
constexpr double kSame = 1e-9;  // relative

struct OperationCost {
  double flops = 0, bytes = 0;
};

OperationCost cost_of(const Eqn& e) {
  std::vector<ShapedArray> in, out;
  OperationCost cost;
  for (const Atom& a : e.in) {
    in.push_back(a.type());
    if (!a.is_literal()) cost.bytes += static_cast<double>(a.type().nbytes());
  }
  for (const VarRef& v : e.out) {
    out.push_back(v->type);
    cost.bytes += static_cast<double>(v->type.nbytes());
  }
  const Primitive& p = *e.primitive;
  if (p.flops) {
    cost.flops = p.flops(in, *e.params, out);
  } else if (p.cost) {  // the primitive reads only some elements of an operand
    cost.bytes = p.cost(in, *e.params, out).bytes;
  }
  return cost;
}

class Simulation {
 public:
  Simulation(const Topology& topology, const PlacedMesh& mesh, PreparedPrograms& programs)
      : topology_(topology),
        mesh_(mesh),
        programs_(programs),
        timeline_(std::make_shared<Timeline>(topology.levels.size())) {}

  // The times at which the results are ready, for arguments that are ready at these times.
  std::vector<double> run(const Jaxpr& program, const std::vector<double>& ready) {
    const PassVisit visit("simulate", program);
    VarMap<double> times;
    for (std::size_t i = 0; i < ready.size(); ++i) times[program.binders[i].get()] = ready[i];
    const auto time = [&](const Atom& a) { return a.is_literal() ? 0 : times.at(a.var()); };
    for (const Eqn& e : program.eqns) {
      std::vector<double> in;
      for (const Atom& a : e.in) in.push_back(time(a));
      const std::vector<double> out = run(e, in);
      for (std::size_t o = 0; o < out.size(); ++o) times[e.out[o].get()] = out[o];
    }
    std::vector<double> out;
    for (const Atom& a : program.outs) out.push_back(time(a));
    return out;
  }

  const std::shared_ptr<Timeline>& timeline() const { return timeline_; }
  std::vector<std::string> take_assumptions() { return std::move(assumptions_); }

 private:
  std::vector<double> run(const Eqn& e, const std::vector<double>& in) {
    switch (e.primitive->programs.control_flow) {
      case ControlFlow::scan:
        return run_scan(e, in);
      case ControlFlow::while_loop:
        return run_while(e, in);
      case ControlFlow::cond:
        return run_cond(e, in);
      case ControlFlow::none:
        break;
    }
    const double ready = in.empty() ? 0 : *std::max_element(in.begin(), in.end());
    if (e.primitive->interpret) {
      double end = ready;
      for (const Jaxpr* inner : inner_jaxprs(*e.params)) {
        const Jaxpr& program = programs_.of(*inner);
        for (double t : run(program, std::vector<double>(program.binders.size(), end)))
          end = std::max(end, t);
      }
      assume(std::string(e.primitive->name) + ": each program inside of it is run once");
      return std::vector<double>(e.out.size(), end);
    }
    return std::vector<double>(e.out.size(), run_operation(e, ready));
  }

  double run_operation(const Eqn& e, double ready) {
    if (e.primitive->moves_data()) {
      const PlacedMesh::Price price = mesh_.price(e);
      if (price.us == 0) return ready;
      std::int64_t bytes = 0;
      for (const Atom& a : e.in) bytes += a.type().nbytes();
      return timeline_->run(
          {static_cast<int>(price.level), e.primitive->name, 0, price.us, bytes, 0}, ready);
    }
    if (is_view(e) || e.primitive->group || e.primitive->has_effect) return ready;
    const OperationCost cost = cost_of(e);
    const double us =
        std::max(cost.flops / topology_.flops_per_us, cost.bytes / topology_.memory_bytes_per_us);
    return timeline_->run({Timeline::kCompute, e.primitive->name, 0, us,
                           static_cast<std::int64_t>(cost.bytes), cost.flops},
                          ready);
  }

  // The times at which the lanes are free and the carry is ready, after a trip.
  std::vector<double> state(const std::vector<double>& carry) const {
    std::vector<double> s;
    for (std::size_t l = 0; l < timeline_->lanes(); ++l) s.push_back(timeline_->free(l));
    s.insert(s.end(), carry.begin(), carry.end());
    return s;
  }

  // The time by which one trip moved all times that it changed, or nothing if it moved them by
  // different amounts.
  static std::optional<double> period(const std::vector<double>& before,
                                      const std::vector<double>& now) {
    double moved = 0;
    for (std::size_t k = 0; k < now.size(); ++k) moved = std::max(moved, now[k] - before[k]);
    for (std::size_t k = 0; k < now.size(); ++k) {
      const double by = now[k] - before[k];
      if (by != 0 && std::abs(by - moved) > kSame * std::max(1.0, now[k])) return std::nullopt;
    }
    return moved;
  }

  std::vector<double> run_scan(const Eqn& e, const std::vector<double>& in) {
    const auto& p = params_as<ScanLoopParams>(*e.params);
    const Jaxpr& body = programs_.of(*p.jaxpr);
    const auto first = static_cast<std::size_t>(p.num_consts);
    const auto carried = static_cast<std::size_t>(p.num_carry);
    std::vector<double> args = in, out(e.out.size(), 0);
    for (std::size_t k = 0; k < carried; ++k) out[k] = in[first + k];
    const auto carry = [&] {
      return std::vector<double>(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(carried));
    };
    std::vector<std::vector<double>> states{state(carry())};
    std::vector<std::size_t> spans{0};  // the number of spans before each trip
    for (std::int64_t trip = 0; trip < p.length; ++trip) {
      spans.push_back(timeline_->spans.size());
      const std::vector<double> results = run(body, args);
      for (std::size_t o = 0; o < out.size(); ++o)
        out[o] = o < carried ? results[o] : std::max(out[o], results[o]);
      for (std::size_t k = 0; k < carried; ++k) args[first + k] = out[k];
      states.push_back(state(carry()));
      const std::int64_t left = p.length - trip - 1;
      const std::size_t n = states.size();
      if (left == 0 || n < 4) continue;
      const std::optional<double> last = period(states[n - 3], states[n - 2]);
      std::optional<double> now = period(states[n - 2], states[n - 1]);
      const bool steady = now && last && std::abs(*now - *last) <= kSame * std::max(1.0, *now);
      if (!steady && trip + 1 < kMostTrips) continue;
      if (!steady) {
        double longest = 0;
        for (std::size_t k = 0; k < states[n - 1].size(); ++k)
          longest = std::max(longest, states[n - 1][k] - states[n - 2][k]);
        now = longest;
        assume("scan of " + std::to_string(p.length) + " trips: from trip " +
               std::to_string(kMostTrips) + " on each is taken to be as long as that one");
      }
      repeat(states[n - 2], states[n - 1], *now, left, spans[spans.size() - 2]);
      const double by = *now * static_cast<double>(left);
      for (std::size_t o = 0; o < out.size(); ++o)
        if (o >= carried ||
            states[n - 1][timeline_->lanes() + o] != states[n - 2][timeline_->lanes() + o])
          out[o] += by;
      break;
    }
    return out;
  }

  // Adds the remaining trips, each as long as the last simulated one.
  void repeat(const std::vector<double>& before, const std::vector<double>& now, double period,
              std::int64_t left, std::size_t first_span) {
    if (period == 0) return;
    std::vector<bool> moves;
    for (std::size_t l = 0; l < timeline_->lanes(); ++l) moves.push_back(now[l] != before[l]);
    double at = 0;
    for (std::size_t l = 0; l < timeline_->lanes(); ++l)
      if (moves[l]) at = std::max(at, now[l]);
    const double exposed = timeline_->exposed(at - period, at, first_span);
    const auto times = static_cast<double>(left);
    timeline_->repeat({at, at + period * times, exposed * times}, moves,
                      std::to_string(left) + " more trips");
  }

  std::vector<double> run_while(const Eqn& e, const std::vector<double>& in) {
    const auto& p = params_as<WhileParams>(*e.params);
    assume("while: nobody knows how many trips it makes: one is counted");
    const auto tests = static_cast<std::ptrdiff_t>(p.cond_nconsts);
    const auto first = tests + static_cast<std::ptrdiff_t>(p.body_nconsts);
    std::vector<double> args(in.begin(), in.begin() + tests);
    args.insert(args.end(), in.begin() + first, in.end());
    const double decided = run(programs_.of(*p.cond_jaxpr), args)[0];
    args.assign(in.begin() + tests, in.end());
    for (double& t : args) t = std::max(t, decided);
    return run(programs_.of(*p.body_jaxpr), args);
  }

  std::vector<double> run_cond(const Eqn& e, const std::vector<double>& in) {
    const auto& p = params_as<CondParams>(*e.params);
    std::size_t longest = 0;
    double most = -1;
    for (std::size_t b = 0; b < p.branches.size(); ++b) {
      const double end = us_alone(*p.branches[b]);
      if (end <= most) continue;
      most = end;
      longest = b;
    }
    assume("cond: the branch that takes longest is run, which is branch " +
           std::to_string(longest) + " of " + std::to_string(p.branches.size()));
    std::vector<double> args(in.begin() + 1, in.end());
    for (double& t : args) t = std::max(t, in[0]);
    return run(programs_.of(*p.branches[longest]), args);
  }

  // How long a program takes for which nothing has to wait. Each program is asked once: in a nest
  // of conds, every level would otherwise simulate all levels below it twice.
  double us_alone(const Jaxpr& asked) {
    std::optional<double>& known = programs_.us_alone(asked);
    if (known) return *known;
    const Jaxpr& program = programs_.of(asked);
    Simulation alone(topology_, mesh_, programs_);
    double end = 0;
    for (double t : alone.run(program, std::vector<double>(program.binders.size(), 0)))
      end = std::max(end, t);
    known = std::max(end, alone.timeline()->end());
    return *known;
  }

  void assume(std::string text) {
    if (std::find(assumptions_.begin(), assumptions_.end(), text) == assumptions_.end())
      assumptions_.push_back(std::move(text));
  }

  const Topology& topology_;
  const PlacedMesh& mesh_;
  PreparedPrograms& programs_;
  std::shared_ptr<Timeline> timeline_;
  std::vector<std::string> assumptions_;
};

// The program of one device and its mesh. A null mesh means one device without a mesh.
struct OneDevice {
  JaxprRef program;
  const detail::AxisEnv* env = nullptr;
};

OneDevice one_device(const detail::ClosedJaxprImpl& program) {
  const detail::MeshImpl* mesh = mesh_of_program(program);
  if (!mesh) {
    for (const Sharding* s : program.in_shardings) {
      if (s) {
        throw ValueError(
            "simulate: the program's arguments lie on one mesh and parts of it work on another: "
            "simulate programs of one mesh");
      }
    }
    return {program.jaxpr, program.jaxpr->env};
  }
  const std::optional<ProgramOfBlocks> blocks = program_of_blocks(program, mesh, true);
  if (!blocks) {
    throw ValueError("simulate: a part of the program works on another mesh than " +
                     describe_axes(*mesh->env()) + ": simulate programs of one mesh");
  }
  return {blocks->lowered.jaxpr, mesh->env()};
}

}  // namespace

Schedule simulate(const ClosedJaxpr& jaxpr, const Topology& topology) {
  check_topology(topology);
  const OneDevice device = one_device(jaxpr.impl());
  const PlacedMesh mesh(topology, device.env);
  Rates rates;
  rates.flops_per_ns = topology.flops_per_us / 1000;
  rates.bytes_per_ns = topology.memory_bytes_per_us / 1000;
  if (!topology.levels.empty())
    rates.link_bytes_per_ns = topology.levels.back().link.bytes_per_us / 1000;
  PreparedPrograms programs(rates);
  const Jaxpr& program = programs.of(*device.program);
  Simulation simulation(topology, mesh, programs);
  simulation.run(program, std::vector<double>(program.binders.size(), 0));
  Schedule schedule;
  schedule.us = simulation.timeline()->end();
  schedule.exposed_communication_us = simulation.timeline()->exposed();
  schedule.peak_bytes = peak_bytes(program, programs);
  schedule.assumptions = simulation.take_assumptions();
  schedule.timeline = simulation.timeline();
  return schedule;
}

}  // namespace shmap
