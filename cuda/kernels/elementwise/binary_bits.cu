// Two integers or bools: bits, shifts, the larger and the smaller.
#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"

namespace shmap::cuda {
namespace {

SHMAP_BINARY_OP(max)
SHMAP_BINARY_OP(min)
SHMAP_BINARY_OP(bit_and)
SHMAP_BINARY_OP(bit_or)
SHMAP_BINARY_OP(bit_xor)
SHMAP_BINARY_OP(shift_left)
SHMAP_BINARY_OP(shift_right_arithmetic)
SHMAP_BINARY_OP(shift_right_logical)

template <class Op, class T>
void run_binary(Operand a, Operand b, void* out, std::int64_t n, void* stream) {
  map<Op, false, T, T, T>("binary", out, n, stream, a, b);
}

template <class T>
BinaryFn find(BinaryOp op, bool is_bool) {
  using U = scalar::Unsigned<T>;
  switch (op) {
    case BinaryOp::max:
      return run_binary<max_op, T>;
    case BinaryOp::min:
      return run_binary<min_op, T>;
    case BinaryOp::bit_and:
      return run_binary<bit_and_op, U>;
    case BinaryOp::bit_or:
      return run_binary<bit_or_op, U>;
    case BinaryOp::bit_xor:
      return run_binary<bit_xor_op, U>;
    default:
      break;
  }
  if (is_bool) return nullptr;
  switch (op) {
    case BinaryOp::shift_left:
      return run_binary<shift_left_op, U>;
    case BinaryOp::shift_right_arithmetic:
      return run_binary<shift_right_arithmetic_op, U>;
    case BinaryOp::shift_right_logical:
      return run_binary<shift_right_logical_op, U>;
    default:
      return nullptr;
  }
}

}  // namespace

BinaryFn binary_bits_kernel(BinaryOp op, DType dtype) {
  if (dtype == DType::bool_) return find<std::uint8_t>(op, true);
  BinaryFn kernel = nullptr;
  return with_integer(dtype, [&]<class T>() { kernel = find<T>(op, false); }) ? kernel : nullptr;
}

}  // namespace shmap::cuda
