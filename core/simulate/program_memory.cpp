#include "core/simulate/program_memory.h"

#include <algorithm>
#include <vector>

#include "core/ir/nesting.h"
#include "core/runtime/kernel.h"
#include "core/simulate/prepared_programs.h"

namespace shmap {

namespace {

// The memory of a value; views share it.
struct Held {
  std::int64_t bytes = 0;
  std::size_t last_use = 0;
  bool owned = false;  // whether the program allocated it (false for arguments)
};

constexpr std::size_t kToTheEnd = ~std::size_t{0};

class Lifetimes {
 public:
  explicit Lifetimes(const Jaxpr& program) : program_(program) {
    held_.assign(program.binders.size(), {0, kToTheEnd, false});
    for (std::size_t i = 0; i < program.binders.size(); ++i) of_[program.binders[i].get()] = i;
    for (std::size_t i = 0; i < program.eqns.size(); ++i) {
      const Eqn& e = program.eqns[i];
      for (const Atom& a : e.in)
        if (!a.is_literal()) use(a.var(), i);
      for (std::size_t o = 0; o < e.out.size(); ++o) {
        if (o == 0 && is_view(e)) {
          of_[e.out[0].get()] = of_.at(e.in[0].var());
          continue;
        }
        of_[e.out[o].get()] = held_.size();
        held_.push_back({e.out[o]->type.nbytes(), i, true});
      }
    }
    for (const Atom& a : program.outs)
      if (!a.is_literal()) use(a.var(), kToTheEnd);
    dying_.resize(program.eqns.size());
    for (std::size_t h = 0; h < held_.size(); ++h)
      if (held_[h].owned && held_[h].last_use != kToTheEnd) dying_[held_[h].last_use].push_back(h);
  }

  const Held& of(const Var* v) const { return held_[of_.at(v)]; }
  std::int64_t bytes_dying(std::size_t eqn) const {
    std::int64_t bytes = 0;
    for (std::size_t h : dying_[eqn]) bytes += held_[h].bytes;
    return bytes;
  }
  // The bytes of the operands whose memory results take over, as the host's kernels would have it.
  std::int64_t bytes_taken_over(std::size_t i) const {
    const Eqn& e = program_.eqns[i];
    std::int64_t bytes = 0;
    std::vector<const Held*> taken;
    for (std::size_t o = 0; e.primitive->in_place && o < e.out.size(); ++o) {
      const ShapedArray& made = e.out[o]->type;
      for (std::size_t k = 0; k < e.in.size(); ++k) {
        if (e.in[k].is_literal() ||
            !may_overwrite(*e.primitive, e.primitive->kernel(kHostKind), *e.params, o, made.dtype(),
                           k, e.in[k].type().dtype()))
          continue;
        const Held& h = of(e.in[k].var());
        if (!h.owned || h.last_use != i || h.bytes != made.nbytes() ||
            std::find(taken.begin(), taken.end(), &h) != taken.end())
          continue;
        bytes += h.bytes;
        taken.push_back(&h);
        break;
      }
    }
    return bytes;
  }

 private:
  void use(const Var* v, std::size_t at) {
    Held& h = held_[of_.at(v)];
    h.last_use = std::max(h.last_use, at);
  }
  const Jaxpr& program_;
  std::vector<Held> held_;
  VarMap<std::size_t> of_;
  std::vector<std::vector<std::size_t>> dying_;  // by equation
};

// The peak of memory besides the arguments.
std::int64_t peak_beside_arguments(const Jaxpr& program, PreparedPrograms& programs) {
  const PassVisit visit("simulate", program);
  const Lifetimes lifetimes(program);
  std::int64_t live = 0, peak = 0;
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    std::int64_t made = 0;
    for (std::size_t o = is_view(e) ? 1 : 0; o < e.out.size(); ++o) made += e.out[o]->type.nbytes();
    std::int64_t inside = 0;
    for (const Jaxpr* inner : inner_jaxprs(*e.params))
      if (e.primitive->interpret)
        inside = std::max(inside, peak_beside_arguments(programs.of(*inner), programs));
    // A branch's results are those of the equation; a loop holds its own results and those of a
    // trip.
    const std::int64_t held =
        e.primitive->runs_one_program ? std::max(made, inside) : made + inside;
    const std::int64_t taken = lifetimes.bytes_taken_over(i);
    peak = std::max(peak, live + held - taken);
    live += made - lifetimes.bytes_dying(i);
  }
  return peak;
}

}  // namespace

std::int64_t peak_bytes(const Jaxpr& program, PreparedPrograms& programs) {
  std::int64_t arguments = 0;
  for (const VarRef& v : program.binders) arguments += v->type.nbytes();
  return arguments + peak_beside_arguments(program, programs);
}

}  // namespace shmap
