// Programs as data (jax.extend.core): the equations, variables and literals of a jaxpr, which can
// be read, built by hand, printed as text and parsed again.
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
// All classes here are small handles on immutable data. A handle keeps alive the program to which
// its data belongs.
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

// A variable of a program. Two Vars are equal where they are the same variable; equal types are not
// enough.
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
  // From a C++ number, or an Array that holds a host scalar; TypeError for any other Array.
  Literal(Array value, SourceLine source = SourceLine::current());
  template <Scalar T>
  Literal(T value) : value_(value) {}
  const Array& value() const { return value_; }
  operator const Array&() const { return value_; }
  ShapedArray type() const { return value_.type(); }

 private:
  Array value_;
};

// An operand of an equation or a result of a program: a variable or a literal.
class Atom {
 public:
  Atom(Var var) : var_(std::move(var)) {}
  Atom(Literal literal) : literal_(std::move(literal)) {}
  template <Scalar T>
  Atom(T value) : literal_(Literal(value)) {}
  bool is_literal() const { return literal_.has_value(); }
  bool is_var() const { return !is_literal(); }
  // ValueError where the atom is of the other kind.
  const Var& var() const;
  const Literal& literal() const;
  ShapedArray type() const { return literal_ ? literal_->type() : var_->type(); }

 private:
  std::optional<Var> var_;
  std::optional<Literal> literal_;
};

// A list of atoms; one atom, one variable and lists of either convert to it.
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

// A primitive of the library or of a user, found by its name.
class AnyPrimitive {
 public:
  const std::string& name() const { return name_; }
  // Binds the primitive under the current trace, as every operation does. TypeError or ValueError
  // for operands and parameters that the primitive does not take, and for a primitive that only
  // compiled plans may contain (these "late" primitives are made by passes).
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

// The primitive of the given name: the library's, or, where the library has none, the user's that
// was made last. ValueError where there is none; the message suggests a similar name.
AnyPrimitive primitive(std::string_view name, SourceLine source = SourceLine::current());
std::vector<std::string> primitive_names();  // of all primitives of the library, alphabetical

// One equation of a program.
class Eqn {
 public:
  AnyPrimitive primitive() const;
  std::vector<Atom> inputs() const;
  std::vector<Var> outputs() const;
  std::vector<std::string> param_names() const;  // alphabetical
  const Params& params() const;
  // The parameter of that name, read as a T (ParamValue::read lists the types). ValueError where
  // there is no parameter of that name, TypeError where it cannot be read as a T.
  template <class T>
  T param(std::string_view name, SourceLine source = SourceLine::current()) const {
    return get_param<T>(params(), name, primitive().name(), source);
  }
  // The programs in the equation's parameters, in the order of the parameters: bodies of loops and
  // of shard_map, branches, nested jits.
  std::vector<ClosedJaxpr> sub_jaxprs() const;
  // The line of user code that bound the equation; empty where it is not known, as in parsed
  // programs.
  SourceLine source() const;
  // Whether the equation has an effect. Such an equation runs even if its results are not used, and
  // in program order with other effects. These are debug::print and equations whose programs
  // contain it.
  bool has_effect() const;

 private:
  friend struct shmap::detail::DataAccess;
  std::shared_ptr<const shmap::detail::EqnHandle> eqn_;
};

std::vector<Eqn> eqns(const ClosedJaxpr& jaxpr);
std::vector<Var> in_vars(const ClosedJaxpr& jaxpr);  // the variables of the arguments
std::vector<Atom> out_atoms(const ClosedJaxpr& jaxpr);
std::vector<Var> constvars(const ClosedJaxpr& jaxpr);  // the variables of consts(jaxpr)
std::vector<Array> consts(const ClosedJaxpr& jaxpr);   // the arrays that the program captured

// Builds a program equation by equation, and checks each equation when it is added. TypeError where
// a variable is unbound (used before an equation defines it), is bound twice, has another type than
// the equation gives it, or belongs to another builder (leaked). ValueError where a primitive or
// parameter is unknown. CollectiveError for a collective outside of a shard_map body. A call that
// throws leaves the builder unchanged. Only one thread at a time may use a builder.
class JaxprBuilder {
 public:
  JaxprBuilder();
  // Builds the body of a shard_map over the given mesh: the types of variables are those of blocks,
  // and collectives may be used.
  explicit JaxprBuilder(const AnyMesh& mesh, bool check_vma = true);
  ~JaxprBuilder();
  JaxprBuilder(const JaxprBuilder&) = delete;
  JaxprBuilder& operator=(const JaxprBuilder&) = delete;

  // A new argument of the program.
  Var input(const ShapedArray& type);
  // An array that the program captures; giving one array again returns the same variable. TypeError
  // for a traced value, which would leak from its trace.
  Var constant(const Array& value, SourceLine source = SourceLine::current());
  // A new variable, to be passed to eqn_into as an output.
  Var var(const ShapedArray& type);

  // Appends an equation and returns its results as new variables.
  std::vector<Var> eqn(std::string_view primitive, Atoms inputs, const Params& params = {},
                       SourceLine source = SourceLine::current());
  std::vector<Var> eqn(const AnyPrimitive& primitive, Atoms inputs, const Params& params = {},
                       SourceLine source = SourceLine::current());
  // Appends an equation whose outputs are variables made by var().
  void eqn_into(std::vector<Var> outputs, std::string_view primitive, Atoms inputs,
                const Params& params = {}, SourceLine source = SourceLine::current());

  // The program of the equations added so far, with these results. The builder stays usable, and
  // can build a longer program.
  ClosedJaxpr build(Atoms results, SourceLine source = SourceLine::current());

 private:
  std::unique_ptr<shmap::detail::BuiltProgram> program_;
};

struct ParseOptions {
  // The mesh of the sharding constraints in the text, and of those shard_maps in it whose axes are
  // the axes of this mesh. Where no mesh is given, a shard_map gets a mesh of the first devices or,
  // where these are too few, an abstract mesh; and a sharding constraint gets the mesh of a
  // shard_map that precedes it.
  std::optional<Mesh> mesh;
};

// Parses a program from the text that to_string prints. Arrays that the printed program captured
// become its first arguments. The text may come from an untrusted source: every fault is a
// ValueError, or a TypeError where types do not fit or a variable is unbound or bound twice, with
// line and column. A user's primitive that has a def_print and a primitive that only compiled plans
// contain are faults too, and the ValueError names the primitive. custom_jvp_call and
// custom_vjp_call are parsed without their rules, and throw where they are differentiated;
// custom_vjp_linear, the linear map of such a rule, also throws where it is run.
ClosedJaxpr parse_jaxpr(std::string_view text, const ParseOptions& options = {},
                        SourceLine source = SourceLine::current());

}  // namespace extend
}  // namespace shmap
