// The static parameters of a primitive: one small struct per primitive that has parameters. The
// parameters of a call are on the stack; they are cloned only if the call is queued or staged. One
// visitor serves printing, comparison and hashing.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmap/axes.h"
#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap {

struct Jaxpr;
namespace detail {
class MeshImpl;
}

// Params::visit calls value() once for each parameter, in the alphabetical order of the printed
// names.
class ParamVisitor {
 public:
  virtual ~ParamVisitor() = default;
  virtual void value(std::string_view name, std::int64_t v) = 0;
  virtual void value(std::string_view name, double v) = 0;
  virtual void value(std::string_view name, bool v) = 0;
  virtual void value(std::string_view name, DType v) = 0;
  virtual void value(std::string_view name, std::string_view v) = 0;
  virtual void value(std::string_view name, const IntList& v) = 0;
  virtual void value(std::string_view name, const std::vector<std::string>& v) = 0;
  virtual void value(std::string_view name, const std::vector<std::pair<int, int>>& v) = 0;
  virtual void value(std::string_view name, const std::vector<std::vector<int>>& v) = 0;
  // A program as a parameter: the body of a shard_map or a loop, a branch, a nested jit.
  virtual void value(std::string_view name, const Jaxpr& v) = 0;
};

// A visitor that ignores all parameters; override the methods for those that are of interest.
class ParamFinder : public ParamVisitor {
 public:
  void value(std::string_view, std::int64_t) override {}
  void value(std::string_view, double) override {}
  void value(std::string_view, bool) override {}
  void value(std::string_view, DType) override {}
  void value(std::string_view, std::string_view) override {}
  void value(std::string_view, const IntList&) override {}
  void value(std::string_view, const std::vector<std::string>&) override {}
  void value(std::string_view, const std::vector<std::pair<int, int>>&) override {}
  void value(std::string_view, const std::vector<std::vector<int>>&) override {}
  void value(std::string_view, const Jaxpr&) override {}
};

class Params {
 public:
  virtual ~Params() = default;
  virtual std::unique_ptr<Params> clone() const { return std::make_unique<Params>(); }
  virtual void visit(ParamVisitor&) const {}
  // Sets `text` to a text that jaxprs print in brackets instead of the parameters (without brackets
  // if the text is empty), and returns true; returns false if the parameters are to be printed.
  virtual bool print(std::string* /*text*/) const { return false; }
  // The mesh that the parameters name; null where the mesh is that of the operands.
  virtual const detail::MeshImpl* mesh() const { return nullptr; }
};

// Derive as `struct FooParams : ParamsOf<FooParams> { …; void visit(ParamVisitor& v) const
// override; };`
template <class Derived>
class ParamsOf : public Params {
 public:
  std::unique_ptr<Params> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

extern const Params no_params;

// Unchecked: `p` must be a T.
template <class T>
const T& params_as(const Params& p) {
  return static_cast<const T&>(p);
}

// One parameter as text: its name and its value. For a parameter that is a program: the program,
// and no text, because the printer lays programs out itself.
struct ParamText {
  std::string name, text;
  const Jaxpr* jaxpr = nullptr;
};
std::vector<ParamText> param_texts(const Params& params);  // in the order of Params::visit
std::string to_string(const Params& params);  // "axes=(0, 1) dtype=f32", "" where there are none
// Appends bytes to `key`, which are equal for equal parameters of the same primitive. Programs in
// parameters are compared by identity.
void append_key(const Params& params, std::string& key);

}  // namespace shmap
