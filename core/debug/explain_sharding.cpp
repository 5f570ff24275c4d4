#include "shmap/explain_sharding.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/base/counted.h"
#include "core/base/format_float.h"
#include "core/compiler/lowering/closed_program.h"
#include "core/compiler/lowering/sharding_constraint.h"
#include "core/ir/collective_axes.h"
#include "core/ir/node.h"
#include "core/ir/variable_name.h"
#include "core/transforms/control_flow/flow_primitives.h"

namespace shmap {

namespace {

using Lines = std::vector<std::string>;

std::string spec_text(const Sharding* s) { return s ? to_string(s->spec()) : "P()"; }

// The printed name of each variable of the program and of the programs inside of it.
void name_variables(const Jaxpr& jaxpr, VarMap<std::string>& names) {
  std::size_t next = 0;
  for (const VarRef& v : jaxpr.binders) names.try_emplace(v.get(), variable_name(next++));
  for (const Eqn& e : jaxpr.eqns) {
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) name_variables(*inner, names);
    for (const VarRef& v : e.out) names.try_emplace(v.get(), variable_name(next++));
  }
}

std::string bytes_text(std::int64_t bytes) { return counted(bytes, "byte"); }

// "psum over 'i', 64 bytes from each device" for each equation that moves data between devices.
std::vector<std::string> collectives_of(std::span<const Eqn> made) {
  std::vector<std::string> texts;
  for (const Eqn& e : made) {
    if (!e.primitive->moves_data()) continue;
    std::string axes;
    for (const std::string& n : collective_axes(*e.params))
      axes += (axes.empty() ? "'" : ", '") + n + "'";
    std::int64_t bytes = 0;
    for (const Atom& a : e.in) bytes += a.type().nbytes();
    texts.push_back(std::string(e.primitive->name) + " over " + axes + ", " + bytes_text(bytes) +
                    " from each device");
  }
  return texts;
}

std::string joined(const std::vector<std::string>& texts, const char* between) {
  std::string all;
  for (const std::string& t : texts) all += (all.empty() ? "" : between) + t;
  return all;
}

class Explainer final : public LowerLog {
 public:
  Explainer(const detail::ClosedJaxprImpl& program, const detail::MeshImpl* mesh)
      : program_(program), mesh_(mesh) {
    name_variables(*program.jaxpr, names_);
  }

  // The text of the whole program, after the lowering.
  std::string text() const {
    std::string all;
    for (const std::string& line : finished_) all += line + "\n";
    std::string out;
    for (std::size_t at = 0; at < all.size(); ++at) {
      if (all[at] != kMark) {
        out += all[at];
        continue;
      }
      const std::size_t end = all.find(kMark, at + 1);
      const Var* sum = sums_[std::stoul(all.substr(at + 1, end - at - 1))].get();
      if (in_parts_.count(sum)) out += ", or rather psum_scatter: each device keeps a part alone";
      at = end;
    }
    return out;
  }

  // ---- as a LowerLog
  void begin_program(const Jaxpr& jaxpr, std::span<const LowerValue> arguments) override {
    Program program;
    program.jaxpr = &jaxpr;
    for (const LowerValue& x : arguments)
      program.arguments.push_back(x.sharding ? x.sharding : mesh_->replicated());
    for (std::size_t i = 0; i < arguments.size(); ++i)
      program.lines.push_back(binder(*jaxpr.binders[i]) + "  " + spec_text(arguments[i].sharding) +
                              "  " + why_argument(i, arguments[i].sharding));
    programs_.push_back(std::move(program));
  }

  void end_program(const Jaxpr& jaxpr, std::span<const LowerValue> results) override {
    Program program = std::move(programs_.back());
    programs_.pop_back();
    for (std::size_t o = 0; o < results.size(); ++o)
      program.lines.push_back("result " + std::to_string(o) + ": " + atom(jaxpr.outs[o]) + "  " +
                              spec_text(results[o].sharding));
    if (eqns_.empty()) {
      finished_ = std::move(program.lines);
      return;
    }
    known_[{&jaxpr, program.arguments}] = program.lines;
    insert(&jaxpr, std::move(program.lines));
  }

  void known_program(const Jaxpr& jaxpr, const std::vector<const Sharding*>& arguments) override {
    const auto it = known_.find({&jaxpr, arguments});
    if (it != known_.end()) insert(&jaxpr, it->second);
  }

  void begin_eqn(const Eqn& e, std::span<const LowerValue> in) override {
    Open open;
    open.eqn = &e;
    open.in.assign(in.begin(), in.end());
    eqns_.push_back(std::move(open));
  }

  void planned(const Partition& plan, const PartitionReasons& reasons) override {
    Open& open = eqns_.back();
    const Primitive& primitive = *open.eqn->primitive;
    if (!primitive.sharding) {
      bool any = false;
      for (const LowerValue& x : open.in) any = any || (x.sharding && !x.sharding->is_replicated());
      if (any) open.why.push_back(std::string("no sharding rule: ") + primitive.sharding.reason());
      return;
    }
    for (const PartitionReasons::Factor& f : reasons.split) {
      const std::string from = "as dim " + std::to_string(f.dim) + " of " + operand(f.operand);
      const std::string in_results = places(reasons.rule.results, f.factor, [&](std::size_t o) {
        return open.eqn->out.size() == 1 ? std::string() : name(*open.eqn->out[o]);
      });
      if (!in_results.empty()) {
        open.why.push_back(in_results + " over " + axes(f.axes) + ", " + from);
        continue;
      }
      const FactorKind kind = reasons.rule.factors[static_cast<std::size_t>(f.factor)].kind;
      const std::string in_operands =
          places(reasons.rule.operands, f.factor, [&](std::size_t i) { return operand(i); });
      const char* whole = kind == FactorKind::max   ? "the largest"
                          : kind == FactorKind::min ? "the smallest"
                                                    : "the sum";
      if (kind == FactorKind::pass) continue;
      open.why.push_back("each device has a part of " + std::string(whole) + ": " + in_operands +
                         " over " + axes(f.axes) + ", " + from);
    }
    for (std::size_t i = 0; i < plan.operands.size(); ++i) {
      if (!plan.operands[i] || plan.operands[i] == open.in[i].sharding) continue;
      std::vector<std::string> because;
      for (const PartitionReasons::Refused& r : reasons.refused)
        if (r.operand == i) because.push_back(refusal(r, reasons));
      for (const PartitionReasons::Factor& f : reasons.split) {
        if (f.operand == i) continue;
        const std::string mine = places_in(reasons.rule.operands[i], f.factor);
        if (!mine.empty() && because.empty())
          because.push_back(mine + " follows " + "dim " + std::to_string(f.dim) + " of " +
                            operand(f.operand));
      }
      open.because[i] = joined(because, "; ");
    }
  }

  void summed_in_parts(const Var& sum) override { in_parts_.insert(&sum); }

  void moved(const LowerValue& x, const Sharding* to, const std::string& what,
             std::span<const Eqn> made) override {
    Open& open = eqns_.back();
    std::string who = what, because;
    for (std::size_t i = 0; i < open.in.size(); ++i) {
      if (open.in[i].block.node() != x.block.node()) continue;
      who = operand(i);
      if (const auto it = open.because.find(i); it != open.because.end()) because = it->second;
      break;
    }
    std::string line = who + " from " + spec_text(x.sharding) + " to " + spec_text(to) + ": ";
    const std::vector<std::string> sent = collectives_of(made);
    line += sent.empty() ? "each device keeps its part, nothing is sent" : joined(sent, ", then ");
    if (!because.empty()) line += "; " + because;
    // Equal moves of one value are listed once, because simplification merges their equations.
    if (std::find(open.moves.begin(), open.moves.end(), line) == open.moves.end())
      open.moves.push_back(line);
    open.moved += static_cast<int>(sent.size());
  }

  void end_eqn(const Eqn& e, std::span<const LowerValue> out, std::span<const Eqn> made) override {
    Open open = std::move(eqns_.back());
    eqns_.pop_back();
    Lines& lines = programs_.back().lines;
    std::string head;
    for (std::size_t o = 0; o < e.out.size(); ++o)
      head += (o ? ", " : "") + binder(*e.out[o]) + "  " + spec_text(out[o].sharding);
    head += (head.empty() ? "" : "  = ") + std::string(e.primitive->name);
    for (const Atom& a : e.in) head += " " + atom(a);
    lines.push_back(std::move(head));
    const auto add = [&](const std::string& line) { lines.push_back("    " + line); };
    if (const std::string said = why_lowered(e); !said.empty()) add(said);
    for (const std::string& line : open.why) add(line);
    for (const std::string& line : open.moves) add("move " + line);
    if (!e.primitive->lower) {
      const std::vector<std::string> all = collectives_of(made);
      std::vector<const Eqn*> moving;
      for (const Eqn& by : made)
        if (by.primitive->moves_data()) moving.push_back(&by);
      for (std::size_t k = static_cast<std::size_t>(open.moved); k < all.size(); ++k)
        add("makes the result whole: " + all[k] + mark(moving[k]->out[0]));
    }
    for (const auto& [jaxpr, inner] : open.inside) {
      const std::string title = inside_title(e, *jaxpr);
      add(title + " {");
      for (const std::string& line : inner) add("  " + line);
      add("}");
    }
  }

 private:
  struct Program {
    const Jaxpr* jaxpr = nullptr;
    Lines lines;
    std::vector<const Sharding*> arguments;
  };
  struct Open {
    const Eqn* eqn = nullptr;
    std::vector<LowerValue> in;
    Lines why, moves;
    std::map<std::size_t, std::string> because;  // by operand: the reason for its move
    int moved = 0;                               // the number of collectives that `moves` lists
    std::vector<std::pair<const Jaxpr*, Lines>> inside;
  };

  // Marks in a line the position of text about a sum that is known only when its program is
  // complete.
  static constexpr char kMark = '\x01';
  std::string mark(const VarRef& sum) {
    sums_.push_back(sum);
    return kMark + std::to_string(sums_.size() - 1) + kMark;
  }

  // Sets the lines of a program inside of the open equation; a program that is lowered again
  // replaces its earlier lines.
  void insert(const Jaxpr* jaxpr, Lines lines) {
    for (auto& [known, old] : eqns_.back().inside) {
      if (known != jaxpr) continue;
      old = std::move(lines);
      return;
    }
    eqns_.back().inside.emplace_back(jaxpr, std::move(lines));
  }

  // Returns why an argument has its sharding. Arguments of programs inside of equations have no
  // reason of their own.
  std::string why_argument(std::size_t i, const Sharding* sharding) const {
    if (!eqns_.empty()) return "an argument";
    const std::size_t consts = program_.consts.size();
    if (i < consts) return "a captured array";
    const std::vector<const Sharding*>& placed = program_.in_shardings;
    if (i - consts < placed.size() && placed[i - consts]) return "an argument, as it was placed";
    return sharding && sharding->is_replicated() ? "an argument, a copy on each device"
                                                 : "an argument, as the program takes it";
  }

  std::string why_lowered(const Eqn& e) const {
    const Primitive* p = e.primitive;
    if (!p->lower) return {};
    if (is_sharding_constraint(*p)) return spec_of_jit(e);
    if (e.params->mesh() && !is_jit_over_mesh(e))
      return "as the out_specs of the mapped function say";
    switch (p->programs.control_flow) {
      case ControlFlow::scan:
      case ControlFlow::while_loop:
        return "a carry is split as its init is, or else as the body leaves it";
      case ControlFlow::cond:
        return "as the first branch that splits it leaves it";
      case ControlFlow::none:
        break;
    }
    return "as the program inside leaves it";
  }

  // The first and the last constraints in the program of a jit over a mesh are its specs.
  std::string spec_of_jit(const Eqn& e) const {
    const Jaxpr& program = *programs_.back().jaxpr;
    const bool in_jit = !eqns_.empty() && is_jit_over_mesh(*eqns_.back().eqn);
    for (std::size_t i = 0; in_jit && i < program.binders.size(); ++i)
      if (program.binders[i].get() == e.in[0].var())
        return "as in_specs say of argument " + std::to_string(i);
    for (std::size_t o = 0; in_jit && o < program.outs.size(); ++o)
      if (program.outs[o].var() == e.out[0].get())
        return "as out_specs say of result " + std::to_string(o);
    return "as this constraint says";
  }

  static std::string inside_title(const Eqn& e, const Jaxpr& jaxpr) {
    switch (e.primitive->programs.control_flow) {
      case ControlFlow::scan:
        return "body";
      case ControlFlow::while_loop:
        return params_as<WhileParams>(*e.params).cond_jaxpr.get() == &jaxpr ? "condition" : "body";
      case ControlFlow::cond: {
        const auto& branches = params_as<CondParams>(*e.params).branches;
        for (std::size_t b = 0; b < branches.size(); ++b)
          if (branches[b].get() == &jaxpr) return "branch " + std::to_string(b);
        break;
      }
      case ControlFlow::none:
        break;
    }
    return "program inside";
  }

  std::string refusal(const PartitionReasons::Refused& r, const PartitionReasons& reasons) const {
    const std::string dim = "dim " + std::to_string(r.dim);
    switch (r.why) {
      case PartitionReasons::Why::blocked:
        return "the operation needs all of " + dim + " on one device";
      case PartitionReasons::Why::minor:
        return dim +
               " is the minor part of a dim that is joined or cut, whose parts would not be "
               "in one piece";
      case PartitionReasons::Why::indivisible:
        return dim + " takes part with an extent that " + axes(r.axes) + " does not divide";
      case PartitionReasons::Why::decided:
      case PartitionReasons::Why::taken:
        break;
    }
    for (const PartitionReasons::Factor& f : reasons.split) {
      for (int a : r.axes) {
        if (std::find(f.axes.begin(), f.axes.end(), a) == f.axes.end()) continue;
        return axes(r.axes) + " splits dim " + std::to_string(f.dim) + " of " + operand(f.operand) +
               ", which is more split, larger or earlier, and decides";
      }
    }
    return dim +
           " is split as another operand is, which is more split, larger or earlier, and "
           "decides";
  }

  // Returns the dims of one value that have the factor: "dim 0".
  static std::string places_in(const std::vector<std::vector<int>>& dims, int factor) {
    std::string text;
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (std::find(dims[d].begin(), dims[d].end(), factor) != dims[d].end())
        text += (text.empty() ? "dim " : " and dim ") + std::to_string(d);
    return text;
  }
  // Returns the dims of several values that have the factor: "dim 0 of a and dim 1 of b". whose(v):
  // the name of value v, or "".
  template <class Whose>
  static std::string places(const std::vector<std::vector<std::vector<int>>>& values, int factor,
                            const Whose& whose) {
    std::string text;
    for (std::size_t v = 0; v < values.size(); ++v) {
      const std::string in = places_in(values[v], factor);
      if (in.empty()) continue;
      const std::string owner = whose(v);
      text += (text.empty() ? "" : " and ") + in + (owner.empty() ? "" : " of " + owner);
    }
    return text;
  }

  std::string axes(const std::vector<int>& indices) const {
    std::string text;
    for (int a : indices)
      text += (text.empty() ? "'" : ", '") + mesh_->env()->names[static_cast<std::size_t>(a)] + "'";
    return text;
  }

  std::string name(const Var& v) const {
    const auto it = names_.find(&v);
    if (it != names_.end()) return it->second;
    return names_[&v] = "new" + std::to_string(++unnamed_);
  }
  std::string binder(const Var& v) const { return name(v) + ":" + to_string(v.type); }
  std::string atom(const Atom& a) const {
    if (!a.is_literal()) return name(*a.var());
    const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
    return detail::format_scalar(literal.value, literal.type.dtype());
  }
  std::string operand(std::size_t i) const {
    const Atom& a = eqns_.back().eqn->in[i];
    return a.is_literal() ? "operand " + std::to_string(i) : name(*a.var());
  }

  const detail::ClosedJaxprImpl& program_;
  const detail::MeshImpl* mesh_;
  // a variable that a simplification made gets its name at its first use
  mutable VarMap<std::string> names_;
  mutable int unnamed_ = 0;
  std::vector<Program> programs_;  // the open programs, outermost first
  std::vector<Open> eqns_;         // the open equations: as many as open programs, or one fewer
  std::map<std::pair<const Jaxpr*, std::vector<const Sharding*>>, Lines> known_;
  Lines finished_;
  std::vector<VarRef> sums_;  // the sums that lines mark
  std::set<const Var*> in_parts_;
};

}  // namespace

std::string explain_sharding(const ClosedJaxpr& jaxpr) {
  const detail::ClosedJaxprImpl& program = jaxpr.impl();
  const detail::MeshImpl* mesh = mesh_of_program(program);
  if (!mesh || mesh->env()->sizes.empty()) {
    return "The program names no mesh, or several, and is not split: trace jit(f, mesh, in_specs), "
           "or give make_jaxpr arguments that lie on one mesh.\n";
  }
  Explainer explainer(program, mesh);
  if (!program_of_blocks(program, mesh, true, &explainer)) {
    return "A part of the program works on another mesh than " + describe_axes(*mesh->env()) +
           ": it runs operation by operation, and is not split as a whole.\n";
  }
  return "mesh " + describe_axes(*mesh->env()) + "\n" + explainer.text();
}

}  // namespace shmap
