// Programs as data: what make_jaxpr traces a function to, and what can be done with it. Printing,
// checking, evaluating and costing a jaxpr; the values of a program's captured arrays go with it.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "shmap/array.h"

namespace shmap {

namespace detail {
struct ClosedJaxprImpl;
}

// A program and its captured constants, which are its first binders. A handle, cheap to copy;
// immutable; usable from several threads.
class ClosedJaxpr {
 public:
  explicit ClosedJaxpr(std::shared_ptr<const detail::ClosedJaxprImpl> impl)
      : impl_(std::move(impl)) {}
  // The types of its arguments (constants left out) and of its results.
  std::vector<ShapedArray> in_types() const;
  std::vector<ShapedArray> out_types() const;
  const std::vector<Array>& consts() const;
  // The same object (not: an equal program).
  friend bool operator==(const ClosedJaxpr&, const ClosedJaxpr&) = default;
  friend std::ostream& operator<<(std::ostream& out, const ClosedJaxpr& jaxpr);
  const detail::ClosedJaxprImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const detail::ClosedJaxprImpl> impl_;
};

// "(f32[3,4]{i}) -> (f32[])"
class JaxprType {
 public:
  JaxprType(std::vector<ShapedArray> in, std::vector<ShapedArray> out)
      : in_types(std::move(in)), out_types(std::move(out)) {}
  std::vector<ShapedArray> in_types, out_types;
  friend bool operator==(const JaxprType&, const JaxprType&) = default;
  friend std::ostream& operator<<(std::ostream& out, const JaxprType& type);
};

// How dtypes print: f32[2,3], or float32[2,3] with the spacing of autodidax.
enum class DTypeNames : std::uint8_t { jax, numpy };
struct PrintOptions {
  DTypeNames dtype_names = DTypeNames::jax;
};
std::string to_string(const ClosedJaxpr& jaxpr, PrintOptions options = {});
std::string to_string(const JaxprType& type, PrintOptions options = {});

// Checks every variable and every equation's types; TypeError names the first fault.
JaxprType typecheck(const ClosedJaxpr& jaxpr);

// The program applied to values, equation by equation: ops that are traced, mapped or run as any
// others where this is called. ValueError where the number or the types of the arguments differ.
std::vector<Array> eval_jaxpr(const ClosedJaxpr& jaxpr, std::vector<Array> args,
                              SourceLine source = SourceLine::current());

// One collective that moves data: its input bytes on each device.
struct CollectiveCost {
  std::string primitive;
  std::vector<std::string> axes;
  std::int64_t bytes;
};
// The work of one device: of arrays that were split when they were given to make_jaxpr, on its
// blocks of them, with the collectives that jit writes out. Programs inside (bodies, branches,
// loops with a known trip count) count as often as they run; of the branches of a cond the
// costliest, and of a while_loop one trip.
struct CostAnalysis {
  double flops = 0;
  double bytes_accessed = 0;
  std::vector<CollectiveCost> collectives;  // in program order
};
CostAnalysis cost_analysis(const ClosedJaxpr& jaxpr);

}  // namespace shmap
