// The parameters of overlapped products, by name, for programs built by hand or read from a text.
#include <algorithm>

#include "collectives/scope.h"
#include "core/extend/param_reader.h"
#include "overlap/overlap.h"

namespace shmap {

namespace {

// "ab,bc->ac": a letter for each dim, none of them twice in one term and each in two of three.
void read_spec(ParamReader& r, OverlapSpec* spec) {
  const std::string text = r.text("spec");
  const std::size_t comma = text.find(','), arrow = text.find("->");
  if (comma == text.npos || arrow == text.npos || arrow < comma)
    r.fail("'spec' is " + text + ": wanted a spec like ab,bc->ac");
  spec->a = text.substr(0, comma);
  spec->b = text.substr(comma + 1, arrow - comma - 1);
  spec->out = text.substr(arrow + 2);
  const std::string terms[] = {spec->a, spec->b, spec->out};
  for (const std::string& term : terms) {
    for (std::size_t d = 0; d < term.size(); ++d) {
      const char l = term[d];
      const bool letter = (l >= 'a' && l <= 'z') || (l >= 'A' && l <= 'Z');
      const auto uses = std::count_if(std::begin(terms), std::end(terms),
                                      [&](const std::string& t) { return place_of(t, l) >= 0; });
      if (!letter || term.find(l, d + 1) != term.npos || uses < 2)
        r.fail("'spec' is " + text + ": each dim wants a letter of its own, which is in two terms");
    }
  }
  for (int i = 0; i < 2; ++i) {
    if (static_cast<int>(spec->labels(i).size()) !=
        r.operands()[static_cast<std::size_t>(i)].rank())
      r.fail("'spec' is " + text + ", which is not of operands of types " +
             to_string(r.operands()[0]) + " and " + to_string(r.operands()[1]));
  }
}

char label_at(ParamReader& r, const char* name, const std::string& labels) {
  return labels[static_cast<std::size_t>(r.index(name, static_cast<std::int64_t>(labels.size())))];
}

// Checks the extents, which the functions that make the program rely on.
void check_extents(ParamReader& r, const OverlapSpec& spec) {
  const auto cut = [&](std::int64_t extent) {
    if (extent % spec.ranks != 0)
      r.fail("a dim of " + std::to_string(extent) + " is not cut by the " +
             describe_ranks(spec.axes, spec.ranks));
  };
  const auto dims = [&](int i) { return r.operands()[static_cast<std::size_t>(i)].dims(); };
  if (spec.kind == OverlapKind::exchange) {
    const auto part = static_cast<std::size_t>(place_of(spec.labels(spec.operand), spec.part));
    cut(dims(spec.operand)[part]);
  }
  const Shape a = assembled(spec, 0, dims(0)), b = assembled(spec, 1, dims(1));
  a.num_elements();
  b.num_elements();
  for (const char l : spec.a) {
    if (place_of(spec.b, l) < 0) continue;
    if (a[static_cast<std::size_t>(place_of(spec.a, l))] !=
        b[static_cast<std::size_t>(place_of(spec.b, l))])
      r.fail(std::string("dim '") + l + "' of 'spec' has two extents");
  }
  if (!spec.moves_operand()) cut(extent_of(spec, spec.part, dims(0), dims(1)));
}

// Makes the program again from the parameters, and compares the printed programs: so the given
// program computes the einsum by which it is differentiated.
template <OverlapKind kind>
std::shared_ptr<const Params> read_overlapped(ParamReader& r) {
  auto p = std::make_shared<OverlapParams>();
  OverlapSpec& spec = p->spec;
  spec.kind = kind;
  read_spec(r, &spec);
  spec.axes = Axes(r.names("axis_name"));
  spec.ranks = AxesInScope(spec.axes, r.primitive(), {}).ranks;
  if (spec.moves_operand()) spec.operand = r.index("operand", 2);
  const std::string& labels = spec.moves_operand() ? spec.labels(spec.operand) : spec.out;
  if (kind == OverlapKind::gather) {
    spec.part = label_at(r, "all_gather_dimension", labels);
  } else if (kind == OverlapKind::scatter) {
    spec.part = label_at(r, "scatter_dimension", labels);
  } else {
    spec.part = label_at(r, "split_axis", labels);
    spec.joined = label_at(r, "concat_axis", labels);
  }
  p->form = r.choice("form", {"ring", "two_rings"}) == 0 ? Overlap::ring : Overlap::two_rings;
  spec.form = p->form;
  const JaxprRef given = r.program("jaxpr");

  const ShapedArray &a = r.operands()[0], &b = r.operands()[1];
  if (a.dtype() != b.dtype() || !(is_integer(a.dtype()) || is_floating(a.dtype())) ||
      a.size() == 0 || b.size() == 0 || !(a.axes() == b.axes())) {
    r.fail("operands of types " + to_string(a) + " and " + to_string(b) +
           ": both must be numbers of the same dtype, have elements, and vary over the same mesh "
           "axes");
  }
  // A ring has an einsum for each rank. This check comes before a program of the mesh's size is
  // made.
  if (spec.ranks < 2 || static_cast<std::size_t>(spec.ranks) > given->eqns.size()) {
    r.fail("its program has " + std::to_string(given->eqns.size()) + " equations, and there are " +
           describe_ranks(spec.axes, spec.ranks));
  }
  check_extents(r, spec);
  p->jaxpr = overlapped_program(spec, p->form, a, b, {});
  if (to_string(*p->jaxpr) != to_string(*given)) {
    r.fail("the program 'jaxpr' is not the one for the einsum " + r.text("spec") + " in the form " +
           to_text(p->form));
  }
  return p;
}

}  // namespace

void register_overlap_syntax() {
  const auto two = [](Primitive& p, ReadParamsFn read) { p.syntax = {2, 2, read, nullptr}; };
  two(all_gather_einsum_p, read_overlapped<OverlapKind::gather>);
  two(einsum_psum_scatter_p, read_overlapped<OverlapKind::scatter>);
  two(all_to_all_einsum_p, read_overlapped<OverlapKind::exchange>);
  two(einsum_all_to_all_p, read_overlapped<OverlapKind::exchange_result>);
}

}  // namespace shmap
