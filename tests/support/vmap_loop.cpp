#include "tests/support/vmap_loop.h"

#include <algorithm>
#include <cmath>

#include "shmap/shmap.h"

namespace shmap::testing {

namespace {

using Arrays = std::vector<Array>;

std::string text_of(const std::vector<int>& axes) {
  std::string text = "{";
  for (std::size_t i = 0; i < axes.size(); ++i)
    text += (i ? ", " : "") + (axes[i] == kUnmapped ? "none" : std::to_string(axes[i]));
  return text + "}";
}

ShapedArray many(const ShapedArray& type, int axis, std::int64_t size) {
  const int at = axis < 0 ? axis + type.rank() + 1 : axis;
  Shape shape;
  for (int d = 0; d <= type.rank(); ++d) {
    if (d == at) shape.push_back(size);
    if (d < type.rank()) shape.push_back(type.dims()[static_cast<std::size_t>(d)]);
  }
  return ShapedArray(shape, type.dtype());
}

// vmap of a list of arrays has one argument: in_axes are the entries of a list in a list.
InAxes axes_of(const std::vector<int>& axes) {
  const auto one = [](int a) { return a == kUnmapped ? InAxes(none) : InAxes(a); };
  switch (axes.size()) {
    case 1:
      return {InAxes{one(axes[0])}};
    case 2:
      return {InAxes{one(axes[0]), one(axes[1])}};
    case 3:
      return {InAxes{one(axes[0]), one(axes[1]), one(axes[2])}};
    default:
      return {InAxes{one(axes[0]), one(axes[1]), one(axes[2]), one(axes[3])}};
  }
}

}  // namespace

Array test_values(const ShapedArray& type, unsigned seed) {
  std::vector<double> values;
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (std::int64_t i = 0; i < type.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const double unit = (state >> 8) / 16777216.0;
    values.push_back(is_floating(type.dtype())      ? 0.1 + 0.8 * unit
                     : type.dtype() == DType::bool_ ? (unit < 0.5 ? 0 : 1)
                                                    : std::floor(unit * 5));
  }
  return astype(array(values, type.dims()), type.dtype());
}

Array item_along(const Array& x, int dim, std::int64_t k) {
  Dims start, limit;
  Shape rest;
  for (int d = 0; d < x.ndim(); ++d) {
    const std::int64_t extent = x.shape()[static_cast<std::size_t>(d)];
    start.push_back(d == dim ? k : 0);
    limit.push_back(d == dim ? k + 1 : extent);
    if (d != dim) rest.push_back(extent);
  }
  return reshape(slice(x, start, limit), rest);
}

std::string array_diff(const Array& want, const Array& got, double tolerance) {
  if (want.dtype() != got.dtype() || !(want.shape() == got.shape()))
    return "type " + to_string(got.type()) + " instead of " + to_string(want.type());
  const bool floats = is_floating(want.dtype());
  const auto a = astype(want, f64).to_vector<double>(), b = astype(got, f64).to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (floats && std::abs(a[i] - b[i]) <= tolerance * std::max(1.0, std::abs(a[i]))) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(b[i]) + " instead of " +
           std::to_string(a[i]);
  }
  return "";
}

std::string check_vmap(const VmapCase& c, const std::vector<int>& in_axes, std::int64_t size) {
  const std::string where =
      c.name + " with in_axes " + text_of(in_axes) + " of " + std::to_string(size) + ": ";
  try {
    Arrays args;
    for (std::size_t i = 0; i < c.in.size(); ++i) {
      const bool mapped = in_axes[i] != kUnmapped;
      args.push_back(test_values(mapped ? many(c.in[i], in_axes[i], size) : c.in[i],
                                 static_cast<unsigned>(i + 1)));
    }
    // The loop, whose results are put together along dim 0; of none only the types are known.
    std::vector<Arrays> results;
    for (std::int64_t k = 0; k < std::max<std::int64_t>(size, 1); ++k) {
      Arrays one;
      for (std::size_t i = 0; i < args.size(); ++i) {
        const int dim = in_axes[i] < 0 ? in_axes[i] + args[i].ndim() : in_axes[i];
        one.push_back(in_axes[i] == kUnmapped ? args[i]
                      : size == 0             ? test_values(c.in[i], 1)
                                              : item_along(args[i], dim, k));
      }
      results.push_back(c.f(one));
    }
    const auto mapped = vmap(c.f, axes_of(in_axes));
    const Arrays eager = mapped(args), jitted = jit(mapped)(args);
    for (std::size_t o = 0; o < results[0].size(); ++o) {
      Arrays all;
      for (const Arrays& r : results) all.push_back(r[o]);
      Array want = stack(all, 0);
      if (size == 0)
        want = slice(want, Dims(std::vector<int>(static_cast<std::size_t>(want.ndim()))), [&] {
          Dims limit;
          for (int d = 0; d < want.ndim(); ++d)
            limit.push_back(d == 0 ? 0 : want.shape()[static_cast<std::size_t>(d)]);
          return limit;
        }());
      std::string diff = array_diff(want, eager[o], c.tolerance);
      if (!diff.empty()) return where + "result " + std::to_string(o) + ": " + diff + "\n";
      diff = array_diff(want, jitted[o], c.tolerance);
      if (!diff.empty())
        return where + "under jit: result " + std::to_string(o) + ": " + diff + "\n";
    }
  } catch (const std::exception& e) {
    return where + e.what() + "\n";
  }
  return "";
}

std::string check_vmap(const VmapCase& c) {
  const auto clipped = [&](std::size_t i, int axis) { return std::min(axis, c.in[i].rank()); };
  std::vector<std::vector<int>> all;
  for (const int axis : {0, 1, -1}) {
    all.emplace_back();
    for (std::size_t i = 0; i < c.in.size(); ++i) all.back().push_back(clipped(i, axis));
  }
  if (c.in.size() > 1) {
    for (std::size_t alone = 0; alone < c.in.size(); ++alone) {
      std::vector<int> one(c.in.size(), kUnmapped), rest(c.in.size(), -1);
      one[alone] = clipped(alone, alone % 2 == 0 ? 1 : 0);
      rest[alone] = kUnmapped;
      all.push_back(one);
      if (c.in.size() > 2) all.push_back(rest);
    }
    std::vector<int> mixed;
    for (std::size_t i = 0; i < c.in.size(); ++i) mixed.push_back(clipped(i, i % 2 ? -1 : 1));
    all.push_back(mixed);
  }
  std::string problems;
  for (const std::vector<int>& axes : all)
    for (const std::int64_t size : {3, 1, 0}) problems += check_vmap(c, axes, size);
  return problems;
}

}  // namespace shmap::testing
