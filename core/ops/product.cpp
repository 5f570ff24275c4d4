#include "core/ops/product.h"

#include <string>

#include "core/base/counted.h"
#include "core/ir/planned_primitive.h"
#include "shmap/error.h"

namespace shmap {

namespace {

// The arithmetic operations of gelu per element.
constexpr double kGeluFlops = 9;

ShapedArray eval_plain(Types in, const ProductParams& p) {
  ShapedArray product;
  dot_general_p.abstract_eval(factor_types(in, p), p.dot, {&product, 1});
  return product;
}

void want_operands(Types in, std::size_t count, const char* what) {
  if (in.size() == count) return;
  throw ValueError(std::string(what) + ": " + counted(in.size(), "operand") +
                   " given, and its parameters want " + std::to_string(count));
}

void eval_product(Types in, const Params& params, std::span<ShapedArray> out) {
  const ProductParams& p = params_as<ProductParams>(params);
  want_operands(in, p.bias ? 3 : 2, "product");
  const ShapedArray product = eval_plain(in, p);
  out[0] = ShapedArray(p.whole.value_or(product.dims()), product.dtype(),
                       product.weak() && (!p.bias || in[2].weak()), AxisSet());
}

void eval_product_into(Types in, const Params& params, std::span<ShapedArray> out) {
  const ProductParams& p = params_as<ProductParams>(params);
  want_operands(in, p.bias ? 4 : 3, "product_into");
  const ShapedArray product = eval_plain(in, p);
  const ShapedArray& target = in[2];
  if (product.dtype() != target.dtype() ||
      !(product.dims() == (p.place.is_whole() ? target.dims() : p.place.sizes))) {
    throw TypeError("product_into: a product of type " + to_string(product) +
                    " does not fit a target of type " + to_string(target));
  }
  const bool weak = p.place.is_whole() ? target.weak() && product.weak() : target.weak();
  out[0] = ShapedArray(target.dims(), target.dtype(), weak, AxisSet());
}

double product_flops(Types in, const Params& params, Types) {
  const ProductParams& p = params_as<ProductParams>(params);
  const ShapedArray product = eval_plain(in, p);
  const double each = (p.bias ? 1 : 0) + (p.adds ? 1 : 0) +
                      (p.activation == Activation::gelu   ? kGeluFlops
                       : p.activation == Activation::relu ? 1
                                                          : 0);
  return dot_general_p.flops(factor_types(in, p), p.dot, {&product, 1}) +
         each * static_cast<double>(product.size());
}

// The target's memory is usually taken over, so that only the product's slice of the target is read
// and written.
Cost product_cost(Types in, const Params& params, Types out) {
  const ProductParams& p = params_as<ProductParams>(params);
  const auto part = static_cast<double>(eval_plain(in, p).nbytes());
  double bytes = part * (p.adds ? 2 : 1);
  for (const ShapedArray& factor : factor_types(in, p))
    bytes += static_cast<double>(factor.nbytes());
  if (p.bias) bytes += static_cast<double>(in.back().nbytes());
  return {product_flops(in, params, out), bytes};
}

const char* name_of(Activation a) {
  switch (a) {
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    default:
      return "none";
  }
}

// True if the dims [begin, end) of a slice form one contiguous dim of the whole array: all dims
// after the first dim whose extent in the slice is not 1 are taken whole.
bool is_one_dim(const Shape& whole, const Shape& part, std::size_t begin, std::size_t end) {
  std::size_t d = begin;
  while (d < end && part[d] == 1) ++d;
  for (++d; d < end; ++d)
    if (part[d] != whole[d]) return false;
  return true;
}

std::int64_t extent(const Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t n = 1;
  for (std::size_t d = begin; d < end; ++d) n *= shape[d];
  return n;
}

constexpr Primitive make(const char* name, AbstractEvalFn eval) {
  Primitive p = planned_primitive(name);
  p.abstract_eval = eval;
  p.cost = product_cost;
  p.no_kernel = "a pass makes it where there is a kernel";
  p.flops = product_flops;
  return p;
}

}  // namespace

void ProductParams::visit(ParamVisitor& v) const {
  if (activation != Activation::none) v.value("activation", std::string_view(name_of(activation)));
  if (adds) v.value("adds", adds);
  if (bias) v.value("bias", bias);
  dot.visit(v);
  const auto slice = [&](const char* name, const ProductSlice& part) {
    if (part.is_whole()) return;
    std::string text;
    for (std::int64_t o : part.offsets) text += (text.empty() ? "" : ", ") + std::to_string(o);
    text = to_string(part.sizes) + " at (" + text + ")";
    v.value(name, std::string_view(text));
  };
  slice("slice", place);
  slice("slice_of_lhs", lhs);
  slice("slice_of_rhs", rhs);
  if (whole) v.value("whole", *whole);
}

std::array<ShapedArray, 2> factor_types(Types in, const ProductParams& p) {
  const auto part = [](const ShapedArray& t, const ProductSlice& slice) {
    return slice.is_whole() ? t : ShapedArray(slice.sizes, t.dtype(), t.weak(), t.axes());
  };
  return {part(in[0], p.lhs), part(in[1], p.rhs)};
}

bool place_product(const Shape& whole, const Shape& part, int batch, int left,
                   ProductStrides* out) {
  const auto rows = static_cast<std::size_t>(batch),
             columns = rows + static_cast<std::size_t>(left), rank = whole.size();
  if (part.size() != rank || columns > rank) return false;
  if (!is_one_dim(whole, part, 0, rows) || !is_one_dim(whole, part, rows, columns) ||
      !is_one_dim(whole, part, columns, rank))
    return false;
  out->row = extent(whole, columns, rank);
  out->item = extent(whole, rows, rank);
  return true;
}

bool is_contiguous_part(const Shape& whole, const Shape& part) {
  return part.size() == whole.size() && is_one_dim(whole, part, 0, whole.size());
}

constinit Primitive product_p = make("product", eval_product);
constinit Primitive product_into_p = [] {
  Primitive p = make("product_into", eval_product_into);
  p.in_place = true;
  p.in_place_operand = 2;
  return p;
}();

void register_product() {
  register_primitive(product_p);
  register_primitive(product_into_p);
}

}  // namespace shmap
