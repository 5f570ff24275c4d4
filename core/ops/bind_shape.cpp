// Binding the primitives of shapes, for operations that consist of several primitives.
#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"

namespace shmap {

Array bind_reshape(Array x, const Shape& shape, SourceLine source) {
  if (checked_node(x, "reshape", source).type.dims() == shape) return x;
  ReshapeParams params;
  params.new_sizes = shape;
  return bind(reshape_p, std::move(x), params, source);
}

bool is_identity(const Dims& dims) {
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (dims[d] != static_cast<std::int64_t>(d)) return false;
  return true;
}

Array bind_transpose(Array x, const Dims& permutation, SourceLine source) {
  const int rank = checked_node(x, "transpose", source).type.rank();
  if (static_cast<int>(permutation.size()) == rank && is_identity(permutation)) return x;
  TransposeParams params;
  params.permutation = permutation;
  return bind(transpose_p, std::move(x), params, source);
}

Array bind_broadcast(Array x, const Shape& shape, const Dims& dims, SourceLine source) {
  BroadcastParams params;
  params.shape = shape;
  params.dims = dims;
  return bind(broadcast_in_dim_p, std::move(x), params, source);
}

Array broadcast_exactly(Array x, const Shape& shape, const char* what, SourceLine source) {
  const Node& node = checked_node(x, what, source);
  if (node.type.rank() == 0 && (node.kind == NodeKind::literal || !shape.empty()))
    return bind_broadcast(std::move(x), shape, Dims(), source);
  const Shape from = node.type.dims();
  const Shape shapes[] = {from, shape};
  if (!(broadcast_shapes(shapes, what, source) == shape)) {
    throw ValueError(std::string(what) + ": a value of shape " + to_string(from) +
                     " does not broadcast to the shape " + to_string(shape) + at_line(source));
  }
  return broadcast_array(std::move(x), shape, source);
}

Array bind_concatenate(std::span<Array> arrays, int dim, SourceLine source) {
  if (arrays.size() == 1) return arrays[0];
  ConcatenateParams params;
  params.dimension = dim;
  return shmap::bind(concatenate_p, arrays, params, source);
}

Array bind_iota(DType dtype, const Shape& shape, int dim, SourceLine source) {
  IotaParams params;
  params.dtype = dtype;
  params.shape = shape;
  params.dimension = dim;
  return shmap::bind(iota_p, std::span<Array>(), params, source);
}

Array scalar_of(DType dtype, double value, SourceLine source) {
  return convert(Array(value), dtype, source);
}

void rethrow_at(const char* what, SourceLine source) {
  try {
    throw;
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line_once(e.what(), source));
  } catch (const TypeError& e) {
    throw TypeError(e.what() + at_line_once(e.what(), source));
  } catch (const OutOfMemory& e) {
    rethrow_at(e, what, source);
  }
}

}  // namespace shmap
