#include "cuda/fused/fused_expression.h"

#include <cinttypes>
#include <cstdio>

#include "core/base/dtype_rows.h"
#include "core/ops/elementwise.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

[[noreturn]] void throw_no_expression(const Primitive& primitive) {
  throw TypeError(std::string("fused: there is no CUDA arithmetic of ") + primitive.name +
                  ": leave it out of fused programs");
}

std::string hex(std::uint64_t bits, const char* suffix) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIx64 "%s", bits, suffix);
  return text;
}

bool computed_as_stored(DType dtype) {
  return dtype != DType::bool_ && dtype != DType::f16 && dtype != DType::bf16;
}

// The names of the storage types (cuda/kernels/embedded/scalar.h) in a text that includes nothing.
constexpr DTypeRow<const char*> kStorageTypes[] = {
    {bool_, "Boolean"},     {i8, "signed char"},   {i16, "short"},          {i32, "int"},
    {i64, "long"},          {u8, "unsigned char"}, {u16, "unsigned short"}, {u32, "unsigned int"},
    {u64, "unsigned long"}, {f16, "F16"},          {bf16, "Bf16"},          {f32, "float"},
    {f64, "double"},        {prng_key, "Key"},
};
static_assert(has_each_dtype(kStorageTypes));

}  // namespace

const char* storage_type(DType dtype) { return row_of(kStorageTypes, dtype); }

const char* compute_type(DType dtype) {
  if (dtype == DType::bool_) return "unsigned char";
  return computed_as_stored(dtype) ? storage_type(dtype) : "float";
}

std::string literal_expression(DType dtype, std::uint64_t bits) {
  const int width = 8 * itemsize(dtype);
  if (width < 64) bits &= (std::uint64_t{1} << width) - 1;
  if (dtype == DType::prng_key)  // the first word comes first in memory
    return "Key{" + hex(bits & 0xffffffffu, "u") + ", " + hex(bits >> 32, "u") + "}";
  if (!computed_as_stored(dtype))
    return std::string(storage_type(dtype)) + "{" + hex(bits, "") + "}";
  if (dtype == DType::f32) return "scalar::float_of(" + hex(bits, "u") + ")";
  if (dtype == DType::f64) return "scalar::double_of(" + hex(bits, "ul") + ")";
  return std::string("static_cast<") + storage_type(dtype) + ">(" + hex(bits, "ul") + ")";
}

std::string widened(DType dtype, const std::string& x) {
  return computed_as_stored(dtype) ? x : "scalar::widen(" + x + ")";
}
std::string narrowed(DType dtype, const std::string& x) {
  if (computed_as_stored(dtype)) return x;
  return std::string("scalar::narrow<") + storage_type(dtype) + ">(" + x + ")";
}

std::string map_expression(const Primitive& primitive, const Params& params,
                           const std::vector<std::string>& operands, DType operand, DType result) {
  const auto call = [&](const std::string& function) {
    std::string text = function + "(";
    for (std::size_t i = 0; i < operands.size(); ++i)
      text += (i ? ", " : "") + widened(operand, operands[i]);
    return text + ")";
  };
  const ElementwiseRow* const row = primitive.elementwise_row;
  if (row == nullptr) throw_no_expression(primitive);
  if (&primitive == &not__p && operand == DType::bool_)
    return narrowed(result, call("scalar::logical_not"));
  using Form = ElementwiseRow::Form;
  switch (row->form) {
    case Form::unary:
    case Form::binary:
    case Form::compare:
    case Form::clamp:
      return narrowed(result, call(std::string("scalar::") + row->name));
    case Form::select:
      return "scalar::select_n(" + widened(operand, operands[0]) + ", " + operands[1] + ", " +
             operands[2] + ")";
    case Form::convert: {
      const DType to = params_as<ConvertParams>(params).new_dtype;
      if (to == operand) return operands[0];
      return std::string("scalar::cast<") + storage_type(to) + ">(" +
             widened(operand, operands[0]) + ")";
    }
    case Form::bits:
      break;
  }
  if (itemsize(operand) != itemsize(result)) throw_no_expression(primitive);
  return std::string("same_bits<") + storage_type(result) + ">(" + operands[0] + ")";
}

std::string draw_expression(const Params& params, const std::vector<std::string>& operands,
                            const std::string& element, DType result) {
  const auto& p = params_as<RandomBitsParams>(params);
  const RandomBlock block(p.shape, p.of);
  const std::string i = "static_cast<unsigned long>(" + element + ")";
  std::string index = operands.size() > 1 ? "static_cast<unsigned long>(" + operands[1] + ")" : "";
  const auto add = [&](const std::string& term) { index += (index.empty() ? "" : " + ") + term; };
  std::int64_t within = 1;  // elements of the block between neighbours along the dim
  for (int d = block.rank; d-- > 0; within *= block.extent[d]) {
    std::string term = within > 1 ? i + " / " + std::to_string(within) + "ul" : i;
    if (d > 0) term += " % " + std::to_string(block.extent[d]) + "ul";
    if (block.stride[d] > 1) term += " * " + std::to_string(block.stride[d]) + "ul";
    add(term);
  }
  return std::string("scalar::random_bits<") + storage_type(result) + ">(" + operands[0] + ", " +
         index + ")";
}

const char* reduction_functor(const Primitive& primitive) {
  if (!primitive.reduction) throw_no_expression(primitive);
  return primitive.name;
}

std::string reduction_of_nothing(const Primitive& primitive, DType dtype) {
  if (primitive.reduction == Reduction::sum) return literal_expression(dtype, 0);  // not -0
  const std::string start =
      std::string(reduction_functor(primitive)) + "::start<" + compute_type(dtype) + ">()";
  return narrowed(dtype, dtype == DType::bool_ ? start + " != 0" : start);
}

}  // namespace shmap::cuda
