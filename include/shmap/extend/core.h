// Programs as data (jax.extend.core): what a jaxpr is made of, to be read, taken apart, built by
// hand, kept as text and read back.
//
//   for (const extend::Eqn& e : extend::eqns(jaxpr))
//     if (e.primitive() == "psum") … e.param<std::vector<std::string>>("axes") …
//
//   extend::JaxprBuilder b;
//   extend::Var x = b.input(ShapedArray({3}, f32));
//   ClosedJaxpr program = b.build(b.eqn("sin", {x}));
//
//   ClosedJaxpr same = extend::parse_jaxpr(to_string(program));
//
// All of these are small handles of what is immutable, and keep the program alive that they are a
// part of.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/extend/params.h"
#include "shmap/extend/primitive.h"
#include "shmap/jaxpr.h"
#include "shmap/mesh.h"

namespace shmap {

namespace detail {
struct EqnHandle;
class BuiltProgram;
struct DataAccess;
}  // namespace detail

namespace extend {

// A variable: two are equal where they are one variable, not where their types are.
class Var {
 public:
  const ShapedArray& type() const;
  friend bool operator==(const Var& a, const Var& b) { return a.var_ == b.var_; }
  friend bool operator<(const Var& a, const Var& b) { return a.var_ < b.var_; }

 private:
  friend struct shmap::detail::DataAccess;
  std::shared_ptr<const void> var_;
};

// A host scalar in a program.
class Literal {
 public:
  // From any C++ number, or an Array that holds a host scalar: TypeError of others.
  Literal(Array value, SourceLine source = SourceLine::current());
  template <Scalar T>
  Literal(T value) : value_(value) {}
  const Array& value() const { return value_; }
  ShapedArray type() const { return value_.type(); }

 private:
  Array value_;
};

// What an equation reads, or a program returns.
class Atom {
 public:
  Atom(Var var) : var_(std::move(var)) {}
  Atom(Literal literal) : literal_(std::move(literal)) {}
  template <Scalar T>
  Atom(T value) : literal_(Literal(value)) {}
  bool is_literal() const { return literal_.has_value(); }
  // ValueError where it is the other.
  const Var& var() const;
  const Literal& literal() const;
  ShapedArray type() const { return literal_ ? literal_->type() : var_->type(); }

 private:
  std::optional<Var> var_;
  std::optional<Literal> literal_;
};

// A list of atoms, from whatever holds some.
class Atoms {
 public:
  Atoms(std::initializer_list<Atom> list) : list_(list) {}
  Atoms(std::vector<Atom> list) : list_(std::move(list)) {}
  Atoms(const std::vector<Var>& list) : list_(list.begin(), list.end()) {}
  Atoms(Var var) : list_{Atom(std::move(var))} {}
  Atoms(Atom atom) : list_{std::move(atom)} {}
  const std::vector<Atom>& list() const { return list_; }

 private:
  std::vector<Atom> list_;
};

// A primitive of the library or of a user, by its name.
class AnyPrimitive {
 public:
  const std::string& name() const { return name_; }
  // Under the current trace, as any op. TypeErrors and ValueErrors: operands or parameters that the
  // primitive does not take; late primitives, which only plans hold.
  Arrays bind(Arrays operands, const Params& params = {},
              SourceLine source = SourceLine::current()) const;
  friend bool operator==(const AnyPrimitive& a, const AnyPrimitive& b) {
    return a.primitive_ == b.primitive_;
  }
  friend bool operator==(const AnyPrimitive& a, std::string_view name) { return a.name_ == name; }
  operator const std::string&() const { return name_; }
  friend std::ostream& operator<<(std::ostream& out, const AnyPrimitive& p);

 private:
  friend struct shmap::detail::DataAccess;
  std::string name_;
  const void* primitive_ = nullptr;
};

// The primitive of that name: the library's, or else the one that a user made last. ValueError,
// which suggests a name that resembles it.
AnyPrimitive primitive(std::string_view name, SourceLine source = SourceLine::current());
std::vector<std::string> primitive_names();  // of all of the library's, in alphabetical order

// One equation of a program.
class Eqn {
 public:
  AnyPrimitive primitive() const;
  std::vector<Atom> inputs() const;
  std::vector<Var> outputs() const;
  std::vector<std::string> param_names() const;  // in alphabetical order
  const Params& params() const;
  // The parameter of that name (ParamValue::read says as what types it can be read). ValueError of
  // another name, TypeError of another type.
  template <class T>
  T param(std::string_view name, SourceLine source = SourceLine::current()) const {
    return get_param<T>(params(), name, primitive().name(), source);
  }
  // The programs inside, in the order of their parameters: bodies of loops and of shard_map,
  // branches, nested jits.
  std::vector<ClosedJaxpr> sub_jaxprs() const;
  // The line of user code that bound it; empty where that is not known, as in programs read back.
  SourceLine source() const;
  // It has to run, and to run in order, whether or not its results are used: debug::print, or what
  // has one inside.
  bool has_effect() const;

 private:
  friend struct shmap::detail::DataAccess;
  std::shared_ptr<const shmap::detail::EqnHandle> eqn_;
};

std::vector<Eqn> eqns(const ClosedJaxpr& jaxpr);
std::vector<Var> in_vars(const ClosedJaxpr& jaxpr);  // of the arguments
std::vector<Atom> out_atoms(const ClosedJaxpr& jaxpr);
std::vector<Var> constvars(const ClosedJaxpr& jaxpr);  // those that stand for consts(jaxpr)
std::vector<Array> consts(const ClosedJaxpr& jaxpr);   // the arrays that it closes over

// Builds a program, equation by equation, each checked when it is added: TypeErrors that say what
// is unbound (used before any equation gives it), bound twice, of another type than the equation
// gives, or of another builder (leaked); ValueErrors of unknown primitives and parameters. A failed
// call leaves the builder as it was. To be used by one thread at a time.
class JaxprBuilder {
 public:
  JaxprBuilder();
  // The body of a shard_map over this mesh: types are those of blocks, and collectives may be used.
  explicit JaxprBuilder(const AnyMesh& mesh, bool check_vma = true);
  ~JaxprBuilder();
  JaxprBuilder(const JaxprBuilder&) = delete;
  JaxprBuilder& operator=(const JaxprBuilder&) = delete;

  // A new argument.
  Var input(const ShapedArray& type);
  // An array that the program closes over; the same one is one variable. Not a traced value, which
  // would leak from its trace: TypeError.
  Var constant(const Array& value, SourceLine source = SourceLine::current());
  // A variable that an equation is to be given as its output.
  Var var(const ShapedArray& type);

  // The results of an equation at the end of the program.
  std::vector<Var> eqn(std::string_view primitive, Atoms inputs, const Params& params = {},
                       SourceLine source = SourceLine::current());
  std::vector<Var> eqn(const AnyPrimitive& primitive, Atoms inputs, const Params& params = {},
                       SourceLine source = SourceLine::current());
  // The same with variables that were made before by var().
  void eqn_into(std::vector<Var> outputs, std::string_view primitive, Atoms inputs,
                const Params& params = {}, SourceLine source = SourceLine::current());

  // The program so far with these results. The builder goes on, and can build a longer one.
  ClosedJaxpr build(Atoms results, SourceLine source = SourceLine::current());

 private:
  std::unique_ptr<shmap::detail::BuiltProgram> program_;
};

struct ParseOptions {
  // The mesh that sharding constraints and, where the axes are the same, shard_maps of the text are
  // of. Without it a shard_map is over the first devices, or, where there are not enough of them,
  // over an abstract mesh; and a constraint has the mesh of a shard_map that stands before it.
  std::optional<Mesh> mesh;
};

// The program of a text as to_string prints it. Arrays that the printed program closed over are its
// first arguments. The text may come from anywhere: whatever is wrong with it is a ValueError, or a
// TypeError where types do not fit, with line and column. Primitives whose parameters are code
// (custom_vjp_linear), and those of plans alone, are refused by name; custom_jvp_call and
// custom_vjp_call come back without their rules, and throw where they are differentiated.
ClosedJaxpr parse_jaxpr(std::string_view text, const ParseOptions& options = {},
                        SourceLine source = SourceLine::current());

}  // namespace extend
}  // namespace shmap
