// Programs as data: make_jaxpr traces a function to a ClosedJaxpr, which can be printed, checked,
// evaluated and costed. A ClosedJaxpr holds the values of the arrays that its function captured.
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

// A program together with the constants that its function captured; the program's first binders
// stand for these constants. A ClosedJaxpr is a handle on immutable data: it is cheap to copy, and
// several threads may use it.
class ClosedJaxpr {
 public:
  explicit ClosedJaxpr(std::shared_ptr<const detail::ClosedJaxprImpl> impl)
      : impl_(std::move(impl)) {}
  // The types of the arguments (without the constants) and of the results.
  std::vector<ShapedArray> in_types() const;
  std::vector<ShapedArray> out_types() const;
  const std::vector<Array>& consts() const;
  // Two ClosedJaxprs are equal where both are handles on the same program object; two programs of
  // the same text that were traced separately are not equal.
  friend bool operator==(const ClosedJaxpr&, const ClosedJaxpr&) = default;
  friend std::ostream& operator<<(std::ostream& out, const ClosedJaxpr& jaxpr);
  const detail::ClosedJaxprImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const detail::ClosedJaxprImpl> impl_;
};

// The types of a program's arguments and results. Prints as "(f32[3,4]{i}) -> (f32[])".
class JaxprType {
 public:
  JaxprType(std::vector<ShapedArray> in, std::vector<ShapedArray> out)
      : in_types(std::move(in)), out_types(std::move(out)) {}
  std::vector<ShapedArray> in_types, out_types;
  friend bool operator==(const JaxprType&, const JaxprType&) = default;
  friend std::ostream& operator<<(std::ostream& out, const JaxprType& type);
};

// How dtypes print: as f32[2,3], or as float32[2,3] with the spacing of autodidax.
enum class DTypeNames : std::uint8_t { jax, numpy };
struct PrintOptions {
  DTypeNames dtype_names = DTypeNames::jax;
};
std::string to_string(const ClosedJaxpr& jaxpr, PrintOptions options = {});
std::string to_string(const JaxprType& type, PrintOptions options = {});

// Checks every variable and the types of every equation; a TypeError names the first fault.
JaxprType typecheck(const ClosedJaxpr& jaxpr);

// Applies the program to values, equation by equation, with ordinary operations: each operation
// runs, or is traced, batched or differentiated, like any operation that the caller could call at
// this point. ValueError where the number of arguments differs from the program's; TypeError where
// an argument's shape or dtype does.
std::vector<Array> eval_jaxpr(const ClosedJaxpr& jaxpr, std::vector<Array> args,
                              SourceLine source = SourceLine::current());

// One collective that moves data. `bytes` is the size of its operand on each device.
struct CollectiveCost {
  std::string primitive;
  std::vector<std::string> axes;
  std::int64_t bytes;
};
// The work of one device. Arguments that were sharded when they were given to make_jaxpr count with
// the size of one block, and the collectives that jit inserts are included. A program inside an
// equation (a body, a branch, a loop whose trip count is known) counts as often as it runs. A cond
// counts as its costliest branch, and a while_loop as one trip.
struct CostAnalysis {
  double flops = 0;
  double bytes_accessed = 0;
  std::vector<CollectiveCost> collectives;  // in program order
};
CostAnalysis cost_analysis(const ClosedJaxpr& jaxpr);

}  // namespace shmap
