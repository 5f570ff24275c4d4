// Builds programs from parsed text (jaxpr_text.h), and checks each equation.
#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "core/array/sharding.h"
#include "core/base/counted.h"
#include "core/base/element_type.h"
#include "core/base/nearest_name.h"
#include "core/extend/built_program.h"
#include "core/extend/data_access.h"
#include "core/extend/jaxpr_text.h"
#include "core/extend/spec_text.h"
#include "core/ir/literal_type.h"
#include "core/ir/nesting.h"
#include "shmap/extend/core.h"

namespace shmap {

namespace {

[[noreturn]] void fail_at(TextPosition place, const std::string& problem) {
  throw ValueError("parse_jaxpr: " + to_string(place) + ": " + problem);
}

// For a variable that is unbound or bound twice: a TypeError, as typecheck's and the builder's.
[[noreturn]] void fail_at_variable(TextPosition place, const std::string& problem) {
  throw TypeError("parse_jaxpr: " + to_string(place) + ": " + problem);
}

// Adds the position in the text to the errors of `f`.
template <class F>
auto at_place(TextPosition place, F f) {
  const auto text = [&](const Error& e) {
    const std::string what = e.what();
    return what.starts_with("parse_jaxpr: ") ? what
                                             : "parse_jaxpr: " + to_string(place) + ": " + what;
  };
  try {
    return f();
  } catch (const TooDeep&) {
    throw;
  } catch (const TypeError& e) {
    throw TypeError(text(e));
  } catch (const ValueError& e) {
    throw ValueError(text(e));
  } catch (const CollectiveError& e) {
    throw ValueError(text(e));
  } catch (const DeviceError& e) {
    throw ValueError(text(e));
  }
}

template <class T>
bool read_number(std::string_view text, T* out) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), *out);
  return r.ec == std::errc() && r.ptr == text.data() + text.size();
}

// Reads a host scalar of that dtype that prints as this text; false if there is none.
bool read_literal(std::string_view text, DType dtype, Array* out) {
  if (dtype == DType::bool_) {
    *out = Array(text == "True");
    return text == "True" || text == "False";
  }
  return with_number(dtype, [&]<class T>() {
    std::conditional_t<std::is_arithmetic_v<T>, T, double> value = 0;  // half types print as double
    if (!read_number(text, &value)) return false;
    if constexpr (std::is_arithmetic_v<T>)
      *out = Array(value);
    else
      *out = Array(T(static_cast<float>(value)));
    return true;
  });
}

// Builds one program of the text. A program inside of it has variable names of its own.
class Builder {
 public:
  Builder(const JaxprText& text, const detail::AxisEnv* env, bool checks_variance, ReadScope& scope)
      : text_(text),
        program_(env, checks_variance),
        checks_variance_(checks_variance),
        scope_(scope) {}

  JaxprRef build() {
    check_nesting("parse_jaxpr");
    for (const BinderText& b : text_.binders)
      at_place(b.place, [&] { bind(b, program_.input(type(b.type))); });
    for (const EqnText& e : text_.eqns) at_place(e.place, [&] { add(e); });
    std::vector<Atom> outs;
    for (const AtomText& a : text_.outs) outs.push_back(atom(a, {}, {}));
    return at_place(text_.place, [&] { return program_.build(outs, {}); });
  }

 private:
  ShapedArray type(const TypeText& t) const {
    const Shape shape(t.dims);
    shape.num_elements();
    checked_bytes(shape, itemsize(t.dtype));
    if (t.axes.empty()) return ShapedArray(shape, t.dtype);
    std::uint32_t mask = 0;
    for (const std::string& name : t.axes) {
      const int axis = program_.env() ? program_.env()->find(name) : -1;
      if (axis < 0) fail_at(t.place, "the mesh axis '" + name + "' is not in scope");
      mask |= 1u << axis;
    }
    return ShapedArray(shape, t.dtype, false, AxisSet(program_.env(), mask));
  }

  void bind(const BinderText& b, VarRef var) {
    if (!names_.emplace(b.name, std::move(var)).second)
      fail_at_variable(b.place,
                       "the variable '" + b.name + "' is bound twice: each has one binder");
  }

  Atom atom(const AtomText& a, std::span<const ShapedArray> beside,
            std::span<const ShapedArray> results) const {
    if (!a.type) {
      if (const auto it = names_.find(a.text); it != names_.end()) return Atom(it->second);
    } else if (!a.type->dims.empty() || !a.type->axes.empty()) {
      fail_at(a.type->place, "a literal is a scalar, of a type as f32[]");
    }
    const DType dtype = a.type ? a.type->dtype : implied_dtype(a.text, beside, results);
    Array value;
    if (read_literal(a.text, dtype, &value)) return Atom(value);
    const char first = a.text[0];
    const bool is_number = (first >= '0' && first <= '9') || first == '-' || first == '+';
    if (is_number || a.type) {
      fail_at(a.place,
              "'" + a.text.substr(0, 40) + "' is not a literal of dtype " + to_string(dtype));
    }
    std::vector<std::string> known;
    for (const auto& [name, var] : names_) known.push_back(name);
    fail_at_variable(a.place,
                     "unbound variable '" + a.text.substr(0, 40) + "'" +
                         did_you_mean(a.text.substr(0, 40), known) +
                         ": it is neither an argument nor the result of an earlier equation");
  }

  // The axes in scope in the body of a shard_map: those of its mesh that it, or a body around it,
  // is mapped over.
  const detail::AxisEnv* body_env(const MeshText& mesh, ParamReader& reader) const {
    const detail::AxisEnv* all = AbstractMesh(Shape(mesh.sizes), Axes(mesh.names)).env();
    if (!reader.has("axis_names")) return all;
    const std::vector<std::string> own = reader.names("axis_names");
    std::vector<std::string> names;
    std::vector<std::int64_t> sizes;
    for (std::size_t a = 0; a < all->names.size(); ++a) {
      const std::string& name = all->names[a];
      const bool outer = program_.env() && program_.env()->find(name) >= 0;
      if (!outer && std::find(own.begin(), own.end(), name) == own.end()) continue;
      names.push_back(name);
      sizes.push_back(all->sizes[a]);
    }
    return detail::AxisEnv::intern(names, sizes);
  }

  // Adds an equation.
  void add(const EqnText& e) {
    const Primitive& primitive = primitive_of_name(e.primitive.substr(0, 100), {});
    extend::Params params;
    for (const ParamValueText& p : e.params) {
      if (p.program) continue;
      if (!params.emplace(p.name, p.text).second)
        fail_at(p.place, "the parameter '" + p.name + "' is given twice");
    }
    const detail::AxisEnv* env = program_.env();
    bool checks_variance = checks_variance_;
    if (e.primitive == "shard_map") {
      ParamReader reader("shard_map", params, {}, scope_);
      const MeshText mesh = read_mesh(reader, "mesh");
      if (mesh.sizes.size() > 31) fail_at(e.place, "a mesh has 31 axes at most");
      env = body_env(mesh, reader);
      checks_variance = !reader.has("check_vma") || reader.flag("check_vma");
    }
    // The program inside a jit over a mesh has constraints on that mesh.
    if (e.primitive == "jit" && params.count("mesh")) {
      ParamReader reader("jit", params, {}, scope_);
      const detail::MeshImpl* mesh = mesh_of_text(reader, read_mesh(reader, "mesh"));
      if (!scope_.mesh) scope_.mesh = mesh;
    }
    for (const ParamValueText& p : e.params) {
      if (!p.program) continue;
      const JaxprRef inner = Builder(*p.program, env, checks_variance, scope_).build();
      if (!params.emplace(p.name, close_jaxpr(inner, {})).second)
        fail_at(p.place, "the parameter '" + p.name + "' is given twice");
    }
    std::vector<ShapedArray> beside, results;
    for (const AtomText& a : e.operands)
      if (const auto it = names_.find(a.text); !a.type && it != names_.end())
        beside.push_back(it->second->type);
    for (const BinderText& b : e.results) results.push_back(type(b.type));
    std::vector<Atom> operands;
    for (const AtomText& a : e.operands) operands.push_back(atom(a, beside, results));
    scope_.results = results;
    auto checked = program_.check(primitive, std::move(operands), params, scope_);
    scope_.results = {};
    if (checked.types.size() != results.size()) {
      throw TypeError("an equation of " + e.primitive + " binds " +
                      counted(results.size(), "variable") + ", and has " +
                      counted(checked.types.size(), "result"));
    }
    for (std::size_t o = 0; o < results.size(); ++o) {
      const ShapedArray& given = checked.types[o];
      const bool loose = !checks_variance_ && results[o].axes().contains(given.axes());
      if (!((loose ? given.with_axes(results[o].axes()) : given) == results[o])) {
        at_place(e.results[o].place, [&]() -> void {
          throw TypeError("an equation of " + e.primitive + " gives a value of type " +
                          to_string(given) + " to a variable of type " + to_string(results[o]));
        });
      }
      checked.types[o] = given.with_axes(results[o].axes());
    }
    const std::vector<VarRef> out = program_.add(std::move(checked), {});
    for (std::size_t o = 0; o < out.size(); ++o) bind(e.results[o], out[o]);
  }

  const JaxprText& text_;
  detail::BuiltProgram program_;
  bool checks_variance_;
  ReadScope& scope_;
  std::map<std::string, VarRef, std::less<>> names_;
};

// Collects the axes that the types of a program of blocks name, in the order of the text. Programs
// inside of a shard_map are skipped, because its mesh names their axes.
void collect_axes(const TypeText& type, std::vector<std::string>& names) {
  for (const std::string& name : type.axes) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (names.size() == 31) fail_at(type.place, "more than 31 mesh axes are named");
    names.push_back(name);
  }
}
void collect_axes(const JaxprText& text, std::vector<std::string>& names) {
  for (const BinderText& b : text.binders) collect_axes(b.type, names);
  for (const EqnText& e : text.eqns) {
    for (const BinderText& b : e.results) collect_axes(b.type, names);
    if (e.primitive == "shard_map") continue;
    for (const ParamValueText& p : e.params)
      if (p.program) collect_axes(*p.program, names);
  }
}

}  // namespace

namespace extend {

ClosedJaxpr parse_jaxpr(std::string_view text, const ParseOptions& options, SourceLine source) {
  ensure_started();
  try {
    const JaxprText parsed = parse_jaxpr_text(text);
    const shmap::detail::AxisEnv* env = current_trace().axis_env();
    if (!env) {
      std::vector<std::string> names;
      collect_axes(parsed, names);
      if (!names.empty()) env = ShapedArray({}, DType::f32, Axes(names)).axes().env();
    }
    ReadScope scope;
    scope.from_text = true;
    if (options.mesh) scope.mesh = options.mesh->impl();
    return close_jaxpr(Builder(parsed, env, true, scope).build(), {});
  } catch (const TypeError& e) {
    throw TypeError(e.what() + at_line_once(e.what(), source));
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line_once(e.what(), source));
  }
}

}  // namespace extend
}  // namespace shmap
