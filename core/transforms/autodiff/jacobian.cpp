#include "shmap/jacobian.h"

#include "core/array/tree_paths.h"
#include "core/ops/rules.h"
#include "core/transforms/autodiff/derivative_args.h"
#include "core/transforms/autodiff/linearize.h"
#include "core/transforms/vmap/batch.h"
#include "shmap/ops.h"

namespace shmap::detail {

namespace {

Shape joined(const Shape& a, const Shape& b) {
  Shape out = a;
  for (std::int64_t e : b) out.push_back(e);
  return out;
}

// The standard basis of a type: arrays with a single 1, stacked along a new first dim.
Array basis_of(const ShapedArray& type, SourceLine source) {
  Array basis = reshape(eye(type.size(), type.dtype()), joined({type.size()}, type.dims()));
  return type.axes().empty() ? basis : cast_to_varying(basis, type.axes(), source);
}

// The linear map at every array of the basis of `type`; the results are stacked along their first
// dim.
template <class Linear>
std::vector<Array> at_basis(const ShapedArray& type, Linear linear, SourceLine source) {
  auto body = [&](std::vector<Array>& leaves, FlatTree& result) {
    result.leaves = linear(leaves[0]);
  };
  FlatTree result;
  Batch outs = batch_of(BodyRef(body), {{basis_of(type, source)}, {0}}, type.size(), result, {});
  for (std::size_t o = 0; o < outs.values.size(); ++o)
    outs.values[o] = with_batch_dim(outs.values[o], outs.dims[o], 0, type.size(), source);
  return std::move(outs.values);
}

void require_floating(const char* what, const std::string& path, const ShapedArray& type,
                      SourceLine source) {
  if (is_differentiable(type.dtype())) return;
  throw TypeError(std::string(what) + ": " + path + " has type " + to_string(type) +
                  ", and only floating values have derivatives: convert it with astype" +
                  at_line(source));
}

}  // namespace

std::vector<Array> jacobian_leaves(bool forward, BodyRef f, FlatTree arguments, SourceLine source) {
  ensure_started();
  const char* what = forward ? "jacfwd" : "jacrev";
  const std::vector<ShapedArray> types = argument_types(what, arguments, source);
  const std::vector<std::string> paths = leaf_paths(arguments.node, "args");
  const std::size_t n = leaf_paths(arguments.node.children[0], "").size();
  std::vector<bool> active(types.size(), false);
  for (std::size_t i = 0; i < n; ++i) {
    require_floating(what, paths[i], types[i], source);
    active[i] = true;
  }
  FlatTree result;
  const Linearized made =
      linearize_of(f, std::move(arguments.leaves), active, result, source, what);
  const LinearProgram& linear = made.linear;
  const std::vector<std::string> out_paths = leaf_paths(result.node, "the result");
  const std::size_t m = linear.out_types.size();
  for (std::size_t o = 0; o < m; ++o)
    require_floating(what, out_paths[o], linear.out_types[o], source);

  std::vector<Array> out(m * n);
  const auto shape = [&](std::size_t o, std::size_t i) {
    return joined(linear.out_types[o].dims(), types[i].dims());
  };
  for (std::size_t i = 0; forward && i < n; ++i) {
    std::vector<Array> columns = at_basis(
        types[i],
        [&](const Array& direction) {
          std::vector<Array> tangents(types.size());
          tangents[i] = direction;
          std::vector<Array> values = linear.apply(tangents, source);
          fill_zeros(values, linear.out_types, source);
          return values;
        },
        source);
    for (std::size_t o = 0; o < m; ++o) {
      Dims last;
      for (int d = 1; d < columns[o].ndim(); ++d) last.push_back(d);
      last.push_back(0);
      out[o * n + i] = reshape(transpose(columns[o], last), shape(o, i));
    }
  }
  for (std::size_t o = 0; !forward && o < m; ++o) {
    std::vector<Array> rows = at_basis(
        linear.out_types[o],
        [&](const Array& direction) {
          std::vector<Array> cotangents(m);
          cotangents[o] = direction;
          std::vector<Array> values = linear.transpose(cotangents, source);
          values.resize(n);
          fill_zeros(values, types, source);
          return values;
        },
        source);
    for (std::size_t i = 0; i < n; ++i) out[o * n + i] = reshape(rows[i], shape(o, i));
  }
  return out;
}

}  // namespace shmap::detail
