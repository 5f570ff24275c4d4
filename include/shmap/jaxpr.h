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

// A program, and the constants that it captured, which are its first input variables. A handle:
// cheap to copy, immutable, usable from several threads.
class ClosedJaxpr {
 public:
  explicit ClosedJaxpr(std::shared_ptr<const detail::ClosedJaxprImpl> impl)
      : impl_(std::move(impl)) {}
  // The types of the arguments (without the constants) and of the results.
  std::vector<ShapedArray> in_types() const;
  std::vector<ShapedArray> out_types() const;
  const std::vector<Array>& consts() const;
  // Equal where both are handles on one program object; equal programs that were traced twice
  // differ.
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

// How dtypes print: as f32[2,3], or as float32[2,3] with the spacing of autodidax.
enum class DTypeNames : std::uint8_t { jax, numpy };
struct PrintOptions {
  DTypeNames dtype_names = DTypeNames::jax;
};
std::string to_string(const ClosedJaxpr& jaxpr, PrintOptions options = {});
std::string to_string(const JaxprType& type, PrintOptions options = {});

// Checks every variable and the types of every equation; a TypeError names the first fault.
JaxprType typecheck(const ClosedJaxpr& jaxpr);

// Applies the program to values, equation by equation, with ordinary operations: they run, or are
// traced, mapped or differentiated, as any operation called here is. ValueError where the number or
// the types of the arguments differ from the program's.
std::vector<Array> eval_jaxpr(const ClosedJaxpr& jaxpr, std::vector<Array> args,
                              SourceLine source = SourceLine::current());

// A collective that moves data: its operand's bytes on each device.
struct CollectiveCost {
  std::string primitive;
  std::vector<std::string> axes;
  std::int64_t bytes;
};
// The work of one device. Arrays that were sharded when make_jaxpr was given them count as their
// blocks, with the collectives that jit inserts. A program inside an equation (a body, a branch, a
// loop whose trip count is known) counts as often as it runs; of the branches of a cond the
// costliest counts, and of a while_loop one trip.
struct CostAnalysis {
  double flops = 0;
  double bytes_accessed = 0;
  std::vector<CollectiveCost> collectives;  // in program order
};
CostAnalysis cost_analysis(const ClosedJaxpr& jaxpr);

}  // namespace shmap
