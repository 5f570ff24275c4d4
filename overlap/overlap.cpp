// The primitives of overlapped products, and the one way that makes them.
#include "overlap/overlap.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "collectives/scope.h"
#include "core/base/env.h"
#include "core/tracing/make_jaxpr.h"
#include "core/tracing/trace_function.h"
#include "overlap/model.h"

namespace shmap {

int place_of(const std::string& labels, char label) {
  const std::size_t at = labels.find(label);
  return at == std::string::npos ? -1 : static_cast<int>(at);
}

Shape assembled(const OverlapSpec& spec, int operand, const Shape& block) {
  Shape shape = block;
  if (!spec.moves_operand() || operand != spec.operand) return shape;
  const std::string& labels = spec.labels(operand);
  const auto part = static_cast<std::size_t>(place_of(labels, spec.part));
  if (spec.kind == OverlapKind::gather) {
    shape[part] *= spec.ranks;
  } else {
    shape[part] /= spec.ranks;
    shape[static_cast<std::size_t>(place_of(labels, spec.joined))] *= spec.ranks;
  }
  return shape;
}

std::int64_t extent_of(const OverlapSpec& spec, char label, const Shape& a, const Shape& b) {
  const int in_a = place_of(spec.a, label);
  if (in_a >= 0) return assembled(spec, 0, a)[static_cast<std::size_t>(in_a)];
  return assembled(spec, 1, b)[static_cast<std::size_t>(place_of(spec.b, label))];
}

const char* to_text(Overlap form) {
  switch (form) {
    case Overlap::automatic:
      return "automatic";
    case Overlap::none:
      return "none";
    case Overlap::ring:
      return "ring";
    default:
      return "two_rings";
  }
}

void OverlapParams::visit(ParamVisitor& v) const {
  const auto dim = [&](const char* name, const std::string& labels, char l) {
    v.value(name, static_cast<std::int64_t>(place_of(labels, l)));
  };
  const std::string text = spec.a + "," + spec.b + "->" + spec.out;
  const std::string& labels = spec.moves_operand() ? spec.labels(spec.operand) : spec.out;
  if (spec.kind == OverlapKind::gather) dim("all_gather_dimension", labels, spec.part);
  v.value("axis_name", spec.axes.names());
  if (spec.joined != 0) dim("concat_axis", labels, spec.joined);
  v.value("form", std::string_view(to_text(form)));
  v.value("jaxpr", *jaxpr);
  if (spec.moves_operand()) v.value("operand", std::int64_t{spec.operand});
  if (spec.kind == OverlapKind::scatter) dim("scatter_dimension", labels, spec.part);
  v.value("spec", std::string_view(text));
  if (spec.joined != 0) dim("split_axis", labels, spec.part);
}

namespace {

// A form must be predicted to take at most this part of the plain form's time, since the model is
// no more accurate than that.
constexpr double kWorthIt = 0.95;

constexpr Primitive make(const char* name) {
  Primitive p = called_primitive(name);
  p.programs.replace = with_called_program<OverlapParams>;
  p.jvp = Rule<JvpFn>(jvp_overlapped);
  p.transpose = Rule<TransposeFn>(transpose_overlapped);
  p.batching = Rule<BatchFn>(batch_overlapped);
  return p;
}

const Primitive& primitive_of(OverlapKind kind) {
  switch (kind) {
    case OverlapKind::gather:
      return all_gather_einsum_p;
    case OverlapKind::scatter:
      return einsum_psum_scatter_p;
    case OverlapKind::exchange:
      return all_to_all_einsum_p;
    default:
      return einsum_all_to_all_p;
  }
}

// A cache of the programs, by everything that they depend on, so that eager derivatives do not
// trace at every call.
class Programs {
 public:
  JaxprRef find(const std::string& key) {
    std::lock_guard lock(mutex_);
    const auto it = kept_.find(key);
    return it == kept_.end() ? JaxprRef() : it->second;
  }
  void keep(std::string key, JaxprRef jaxpr) {
    std::lock_guard lock(mutex_);
    if (kept_.size() >= kMost) kept_.clear();
    kept_.emplace(std::move(key), std::move(jaxpr));
  }

 private:
  static constexpr std::size_t kMost = 256;
  std::mutex mutex_;
  std::map<std::string, JaxprRef> kept_;
};

}  // namespace

constinit Primitive all_gather_einsum_p = make("all_gather_einsum");
constinit Primitive einsum_psum_scatter_p = make("einsum_psum_scatter");
constinit Primitive all_to_all_einsum_p = make("all_to_all_einsum");
constinit Primitive einsum_all_to_all_p = make("einsum_all_to_all");

void register_collectives_overlap() {
  for (Primitive* p :
       {&all_gather_einsum_p, &einsum_psum_scatter_p, &all_to_all_einsum_p, &einsum_all_to_all_p})
    register_primitive(*p);
}

JaxprRef overlapped_program(const OverlapSpec& spec, Overlap form, const ShapedArray& a,
                            const ShapedArray& b, SourceLine source) {
  static auto& programs = *new Programs();  // never destroyed: arrays may be used until the end
  const Trace& here = current_trace();
  const ShapedArray types[] = {a, b};
  const detail::AxisEnv* env = env_for(types);
  std::string key = spec.a + "," + spec.b + "->" + spec.out + spec.part + spec.joined;
  const auto raw = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  raw(spec.kind);
  raw(spec.operand);
  raw(form);
  raw(env);
  raw(source.file);
  raw(source.line);
  raw(here.checks_variance());
  for (const std::string& name : spec.axes) key += name + '\0';
  for (const ShapedArray& t : types) append_type_key(t, key);
  if (JaxprRef known = programs.find(key)) return known;
  auto ops = [&](std::vector<Array>& leaves, detail::FlatTree& result) {
    result.leaves.push_back(overlapped_ops(spec, form, leaves[0], leaves[1], source));
  };
  StagingOptions options;
  options.check_variance = here.checks_variance();
  detail::FlatTree result;
  Traced traced = trace_function(primitive_of(spec.kind).name, types, detail::BodyRef(ops), result,
                                 options, source);
  programs.keep(std::move(key), traced.jaxpr);
  return traced.jaxpr;
}

OverlapChoice choose_overlap(const OverlapSpec& spec, const ShapedArray& a, const ShapedArray& b) {
  const detail::AxisEnv* env = (a.axes() | b.axes()).env();
  if (env == nullptr) env = current_trace().axis_env();
  OverlapChoice choice = model_overlap(spec, env, a, b);
  choice.form = spec.form;
  if (choice.form == Overlap::automatic) choice.form = forced_overlap();
  if (choice.form == Overlap::automatic) {
    const double best = std::min(choice.ring_us, choice.two_rings_us);
    choice.form = best >= kWorthIt * choice.none_us      ? Overlap::none
                  : choice.two_rings_us < choice.ring_us ? Overlap::two_rings
                                                         : Overlap::ring;
  }
  const auto nothing = [](const ShapedArray& t) { return t.size() == 0; };
  if (spec.ranks == 1 || nothing(a) || nothing(b) || a.dtype() == DType::bool_)
    choice.form = Overlap::none;
  return choice;
}

Array run_overlapped(const OverlapSpec& spec, Array a, Array b, SourceLine source) {
  Trace& here = current_trace();
  const LibraryScope library;
  if (here.checks_variance()) {
    const AxesInScope scope(spec.axes, primitive_of(spec.kind).name, source);
    const AxisSet all =
        node_of(a)->type.axes() | node_of(b)->type.axes() | AxisSet(scope.env, scope.mask);
    a = here.vary(a, all, source);
    b = here.vary(b, all, source);
  }
  const Overlap form = choose_overlap(spec, node_of(a)->type, node_of(b)->type).form;
  if (form == Overlap::none || (!here.staged() && !here.transforms()))
    return overlapped_ops(spec, form, a, b, source);
  OverlapParams params;
  params.jaxpr = overlapped_program(spec, form, node_of(a)->type, node_of(b)->type, source);
  params.spec = spec;
  params.form = form;
  return bind(primitive_of(spec.kind), std::move(a), std::move(b), params, source);
}

}  // namespace shmap
