// Type promotion (JAX's lattice, weak types included) and NumPy broadcasting, which user functions
// apply before they bind primitives.
#pragma once
#include <initializer_list>
#include <span>

#include "core/ir/trace.h"
#include "shmap/array.h"

namespace shmap {

struct Promoted {
  DType dtype;
  bool weak;
};
// The joint type of two types in the lattice.
Promoted promote_types(DType a, bool weak_a, DType b, bool weak_b);
// The float dtype in which `/`, sin, mean … compute for an integer dtype (JAX's to_inexact_dtype).
DType to_inexact(DType dtype);

// The type of an operand of operation `what`. ValueError where the operand is empty.
const ShapedArray& type_of(const Operand& x, const char* what);

// x converted to dtype; the same handle where x has it. A literal is converted on the host. weak:
// whether the result is weak.
Array convert(Array x, DType dtype, SourceLine source, bool weak = false);
// ValueError where x is a host scalar of an integer type whose value does not fit into the integer
// dtype `dtype`; names the value, the dtype and its range. (NumPy 2's OverflowError.)
void check_scalar_fits(const Array& x, DType dtype, const char* what, SourceLine source);
// check_scalar_fits, then convert: for an operand of operation `what`.
Array convert_operand(Array x, DType dtype, const char* what, SourceLine source, bool weak = false);
// Where `scalar` is a host scalar of an integer type beyond the range of the other's integer dtype:
// 1 if it is larger than all values of that dtype, -1 if it is smaller. Otherwise 0.
int beyond(const Array& scalar, const ShapedArray& other);
// Converts both operands to their joint dtype.
void promote(Operand& a, Operand& b, const char* what);
void promote_inexact(Operand& x, const char* what);
void promote_inexact(Operand& a, Operand& b, const char* what);
// Broadcasts both operands to one shape by NumPy's rules, except that a scalar stays a scalar,
// which elementwise primitives accept. ValueError naming both shapes.
void broadcast(Operand& a, Operand& b, const char* what);
// The broadcast shape of several shapes. operands: the arrays of these shapes, if they are
// available: an error then says which of them a shard_map body captured.
Shape broadcast_shapes(std::span<const Shape> shapes, const char* what, SourceLine source,
                       std::initializer_list<const Array*> operands = {});
Array broadcast_array(Array x, const Shape& shape, SourceLine source);
// Broadcasts x for an operation whose other operands vary over these axes. The cast comes before
// the broadcast, so that its transpose, a psum, communicates an array of x's size instead of the
// result's.
Array vary_and_broadcast(Array x, const Shape& shape, const AxisSet& axes, SourceLine source);

}  // namespace shmap
