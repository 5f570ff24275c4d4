// Permutations, choices and categories.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/counted.h"
#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/scan.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/ops/sort.h"
#include "core/random/samplers.h"
#include "core/runtime/host_transfer.h"
#include "shmap/ops.h"
#include "shmap/random.h"

namespace shmap {

namespace draw {

namespace {

// Sorts by random words, in enough rounds that two items are unlikely to have equal words in all of
// them.
Array shuffled(BitSource from, Array x, int axis) {
  const auto size = static_cast<double>(std::max<std::int64_t>(node_of(x)->type.size(), 1));
  const int rounds = static_cast<int>(std::ceil(3 * std::log(size) / std::log(4294967295.0)));
  for (int round = 0; round < rounds; ++round) {
    const std::vector<BitSource> keys = from.split(2);
    Array in[] = {keys[1].bits(32, node_of(x)->type.dims()), std::move(x)};
    x = std::move(bind_all(sort_p, in, SortParams(axis), from.source())[1]);
    from = keys[0];
  }
  return x;
}

Array along(const Array& x, const Array& index, int axis, SourceLine s) {
  return take(Operand(x, s.file, s.line), Operand(index, s.file, s.line), axis);
}

int dim_of(int axis, int rank, const BitSource& from) {
  return at_source(from.source(), [&] { return normalize_dim(axis, rank, from.what()); });
}

// True if x is an integer that the host knows, which then is the number of items.
bool is_count(const Operand& x, const char* what, std::int64_t* count) {
  const ShapedArray type = type_of(x, what);
  if (type.rank() != 0) return false;
  if (!is_integer(type.dtype())) {
    throw TypeError(std::string(what) + ": a scalar of type " + to_string(type) +
                    ": wanted an integer, or an array of one dim or more" + at_line(x.source));
  }
  const std::vector<std::byte> bytes =
      copy_to_host(convert(x.value, DType::i64, x.source), what, x.source);
  std::copy_n(bytes.data(), sizeof *count, reinterpret_cast<std::byte*>(count));
  return true;
}

Array permuted(const BitSource& from, const Array& x, int axis, bool independent) {
  const Shape dims = node_of(x)->type.dims();
  if (independent || dims.size() == 1) return shuffled(from, x, axis);
  const Array places =
      bind_iota(DType::i32, {dims[static_cast<std::size_t>(axis)]}, 0, from.source());
  return along(x, shuffled(from, places, 0), axis, from.source());
}

// For each of `values`, the first position at which it could be inserted into the sorted line.
Array places_in(const Array& line, const Array& values, SourceLine s) {
  const RuleOps op(s);
  const std::int64_t n = node_of(line)->type.size();
  const Shape dims = node_of(values)->type.dims();
  const auto fill = [&](std::int64_t value) {
    return op.to_shape(convert(Array(value), DType::i32, s), dims);
  };
  Array low = fill(0), high = fill(n);
  for (std::int64_t reach = 1; reach <= n; reach *= 2) {
    Array middle = op(add_p, low, high);
    middle = op(shift_right_arithmetic_p, middle, op.number(1, middle));
    const Array right = op(lt_p, along(line, middle, 0, s), values);
    low = op.select(right, op(add_p, middle, op.number(1, middle)), low);
    high = op.select(right, high, op(max_p, low, middle));
  }
  return low;
}

}  // namespace
}  // namespace draw

Array random::permutation(Key key, Operand x, int axis, bool independent) {
  const FunctionScope scope("permutation", {&key.data, &x.value}, key.source);
  const draw::BitSource from(std::move(key), "permutation");
  return at_source("permutation", from.source(), [&] {
    std::int64_t n = 0;
    if (draw::is_count(x, "permutation", &n)) {
      const std::int64_t count = std::max<std::int64_t>(n, 0);
      return draw::shuffled(from, bind_iota(DType::i32, {count}, 0, from.source()), 0);
    }
    const int dim = draw::dim_of(axis, node_of(x.value)->type.rank(), from);
    return draw::permuted(from, x.value, dim, independent);
  });
}

Array random::choice(Key key, Operand a, Shape shape, ChoiceOptions options) {
  const SourceLine s = key.source;
  std::vector<const Array*> all = {&key.data, &a.value};
  if (options.p.node()) all.push_back(&options.p);
  const FunctionScope scope("choice", all, s);
  const draw::BitSource from(std::move(key), "choice");
  std::int64_t items = 0;
  const bool numbers = draw::is_count(a, "choice", &items);
  int axis = 0;
  if (!numbers) {
    axis = draw::dim_of(options.axis, node_of(a.value)->type.rank(), from);
    items = node_of(a.value)->type.dims()[static_cast<std::size_t>(axis)];
  }
  const std::int64_t draws = shape.num_elements();
  if (items <= 0 && draws > 0)
    throw ValueError("choice: there are no items to choose from" + at_line(s));
  if (!options.replace && draws > items) {
    throw ValueError("choice: " + std::to_string(draws) + " items without replacing, of " +
                     std::to_string(items) + ": choose fewer, or pass replace = true" + at_line(s));
  }
  return at_source("choice", s, [&] {
    const RuleOps op(s);
    Array index;
    if (!options.p.node()) {
      if (options.replace) {
        index = draw::randint(from, shape, convert(Array(0), DType::i32, s),
                              convert(Array(items), DType::i32, s), DType::i32);
      } else if (numbers) {
        const Array order = draw::shuffled(from, bind_iota(DType::i32, {items}, 0, s), 0);
        index = bind_reshape(slice_dim(order, 0, 0, draws, s), shape, s);
      } else {
        const Array order = draw::permuted(from, a.value, axis, false);
        Shape dims;
        const Shape given = node_of(a.value)->type.dims();
        for (std::size_t d = 0; d < given.size(); ++d) {
          if (d != static_cast<std::size_t>(axis)) {
            dims.push_back(given[d]);
          } else {
            for (std::int64_t e : shape) dims.push_back(e);
          }
        }
        return bind_reshape(slice_dim(order, axis, 0, draws, s), dims, s);
      }
    } else {
      const ShapedArray type = node_of(options.p)->type;
      if (!(type.dims() == Shape({items})) || type.dtype() == DType::prng_key) {
        throw ValueError("choice: p has type " + to_string(type) + ": wanted a probability for " +
                         "each of the " + std::to_string(items) + " items");
      }
      const Array p = convert(options.p, to_inexact(type.dtype()), s);
      const DType dtype = node_of(p)->type.dtype();
      if (draws == 0) {  // there may be no items either
        index = bind_iota(DType::i32, shape, 0, s);
      } else if (options.replace) {
        const Array sums = bind(cumsum_p, p, ScanParams(0), s);
        const Array total = draw::item(sums, items - 1, s);
        const Array u = draw::uniform(from, shape, dtype);
        const Array r = op(mul_p, total, op(sub_p, op.number(1, u), u));
        index = draw::places_in(sums, r, s);
      } else {
        const Array g = op(add_p, draw::gumbel(from, {items}, dtype), op(log_p, p));
        Array in[] = {g};
        index = bind_reshape(bind_all(top_k_p, in, TopKParams(0, draws), s)[1], shape, s);
      }
    }
    return numbers ? index : draw::along(a.value, index, axis, s);
  });
}

Array random::categorical(Key key, Operand logits, int axis) {
  const ShapedArray type = type_of(logits, "categorical");
  const int dim =
      at_source(key.source, [&] { return normalize_dim(axis, type.rank(), "categorical"); });
  Shape shape;
  for (int d = 0; d < type.rank(); ++d)
    if (d != dim) shape.push_back(type.dims()[static_cast<std::size_t>(d)]);
  return categorical(std::move(key), std::move(logits), axis, std::move(shape));
}

Array random::categorical(Key key, Operand logits, int axis, Shape shape, bool replace) {
  const SourceLine s = key.source;
  const FunctionScope scope("categorical", {&key.data, &logits.value}, s);
  const draw::BitSource from(std::move(key), "categorical");
  const ShapedArray type = type_of(logits, "categorical");
  if (!is_floating(type.dtype())) {
    throw TypeError("categorical: logits of type " + to_string(type) + ": wanted floats" +
                    at_line(s));
  }
  const int dim = draw::dim_of(axis, type.rank(), from);
  const std::int64_t classes = type.dims()[static_cast<std::size_t>(dim)];
  Shape batch, prefix, drawn;
  for (int d = 0; d < type.rank(); ++d)
    if (d != dim) batch.push_back(type.dims()[static_cast<std::size_t>(d)]);
  bool fits = shape.size() >= batch.size();
  for (std::size_t d = 0; fits && d < batch.size(); ++d)
    fits = shape[shape.size() - batch.size() + d] == batch[d];
  if (!fits) {
    throw ValueError("categorical: shape " + to_string(shape) + " for logits of type " +
                     to_string(type) + ": wanted one that ends in " + to_string(batch) +
                     at_line(s));
  }
  for (std::size_t d = 0; d + batch.size() < shape.size(); ++d) prefix.push_back(shape[d]);
  return at_source("categorical", s, [&] {
    const RuleOps op(s);
    if (replace) {
      for (std::int64_t e : prefix) drawn.push_back(e);
      for (std::int64_t e : type.dims()) drawn.push_back(e);
      const Array g = draw::gumbel(from, drawn, type.dtype());
      const Array sum = op(add_p, g, broadcast_array(logits.value, drawn, s));
      return argmax(Operand(sum, s.file, s.line), dim + static_cast<int>(prefix.size()));
    }
    const std::int64_t count = prefix.num_elements();
    if (count > classes) {
      throw ValueError("categorical: " + counted(count, "draw") + " without replacing, of " +
                       counted(classes, "class", "classes") + ": draw fewer");
    }
    Array sum = op(add_p, logits.value, draw::gumbel(from, type.dims(), type.dtype()));
    Dims last;
    for (int d = 0; d < type.rank(); ++d)
      if (d != dim) last.push_back(d);
    last.push_back(dim);
    sum = bind_transpose(sum, last, s);
    Array in[] = {sum};
    Array index = bind_all(top_k_p, in, TopKParams(type.rank() - 1, count), s)[1];
    Dims first(type.rank() - 1);
    for (int d = 0; d + 1 < type.rank(); ++d) first.push_back(d);
    return bind_reshape(bind_transpose(index, first, s), shape, s);
  });
}

}  // namespace shmap
