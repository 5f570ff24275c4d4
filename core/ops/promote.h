// Type promotion (JAX's lattice, weak types included) and NumPy broadcasting: what user functions
// do before they bind.
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
// The join of two types in the lattice.
Promoted promote_types(DType a, bool weak_a, DType b, bool weak_b);
// An integer's floating dtype: what `/`, sin, mean … compute in (JAX's to_inexact_dtype).
DType to_inexact(DType dtype);

// The type of an operand of op `what`: a ValueError where it is empty.
const ShapedArray& type_of(const Operand& x, const char* what);

// x as dtype; the same handle where it has it. A literal is converted on the host. Keeps or drops
// weakness as told.
Array convert(Array x, DType dtype, SourceLine source, bool weak = false);
// A ValueError where x is a host scalar of an integer type, and that integer dtype cannot hold its
// value: names the value, the dtype and its range. (NumPy 2's OverflowError.)
void check_scalar_fits(const Array& x, DType dtype, const char* what, SourceLine source);
// convert, of what an op `what` was given: after check_scalar_fits.
Array convert_operand(Array x, DType dtype, const char* what, SourceLine source, bool weak = false);
// Where one of the two is a host scalar of an integer type beyond the integer dtype of the other:
// how it compares, 1 where it is larger than all values of that dtype and -1 where it is smaller;
// else 0.
int beyond(const Array& scalar, const ShapedArray& other);
// Brings both to their joint dtype.
void promote(Operand& a, Operand& b, const char* what);
void promote_inexact(Operand& x, const char* what);
void promote_inexact(Operand& a, Operand& b, const char* what);
// Brings both to one shape by NumPy's rules; a scalar is left a scalar (elementwise primitives take
// it as it is), unless both are. ValueError naming both shapes.
void broadcast(Operand& a, Operand& b, const char* what);
// The broadcast shape of several. operands: the arrays of these shapes, where they are at hand: an
// error then says which of them a shard_map body closes over.
Shape broadcast_shapes(std::span<const Shape> shapes, const char* what, SourceLine source,
                       std::initializer_list<const Array*> operands = {});
Array broadcast_array(Array x, const Shape& shape, SourceLine source);
// The same for an op whose other operands vary over these axes: a cast that the op needs is made
// before x is repeated, so that the transpose sums x's size over devices and not the result's.
Array vary_and_broadcast(Array x, const Shape& shape, const AxisSet& axes, SourceLine source);

}  // namespace shmap
