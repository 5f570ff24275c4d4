#include "core/ops/index_terms.h"

#include <algorithm>

#include "core/base/counted.h"
#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/slicing.h"

namespace shmap {

IndexTerms::IndexTerms(const ShapedArray& type, std::span<const Index> indices, SourceLine source)
    : type_(type), source_(source) {
  terms_.reserve(indices.size() + static_cast<std::size_t>(type_.rank()));
  int given = 0, ellipses = 0;
  for (const Index& index : indices) {
    given += index.kind != Index::Kind::new_dim && index.kind != Index::Kind::other_dims;
    ellipses += index.kind == Index::Kind::other_dims;
  }
  if (given > type_.rank()) {
    throw ValueError("an index of " + counted(given, "dim") + " of an array of type " +
                     to_string(type_) + ", which has " + std::to_string(type_.rank()) +
                     ": leave some out" + at_line(source_));
  }
  if (ellipses > 1) {
    throw ValueError("an index with " + std::to_string(ellipses) +
                     " ellipses, which is ambiguous: an index has at most one ellipsis" +
                     at_line(source_));
  }
  const auto fill = [&](int until) {
    while (dims_ < until) terms_.push_back({Index::Kind::range, dims_++, 0, range(), {}});
  };
  for (const Index& index : indices) {
    if (index.kind == Index::Kind::other_dims)
      fill(dims_ + type_.rank() - given);
    else
      add(index);
  }
  fill(type_.rank());
}

void IndexTerms::add(const Index& index) {
  IndexTerm t{index.kind, -1, index.integer, index.slice, index.array};
  if (t.kind != Index::Kind::new_dim) t.dim = dims_++;
  if (t.kind == Index::Kind::array) {
    const Node& node = checked_node(t.array, "an index", source_);
    if (!is_integer(node.type.dtype())) {
      throw TypeError("an index of type " + to_string(node.type) + ": integers are wanted" +
                      (node.type.dtype() == DType::bool_
                           ? ", since the shape of the result would depend on values; choose by a "
                             "mask with where(mask, x, y)"
                           : "; convert it with astype") +
                      at_line(source_));
    }
    // A host int that the user wrote counts as an integer; computed scalars, such as a loop's
    // index, stay arrays.
    if (node.kind == NodeKind::literal && node.type.weak()) {
      t.kind = Index::Kind::integer;
      t.integer = convert(t.array, DType::i64, source_).item<std::int64_t>(source_);
    }
  }
  terms_.push_back(std::move(t));
}

bool IndexTerms::has_arrays() const {
  return std::any_of(terms_.begin(), terms_.end(),
                     [](const IndexTerm& t) { return t.kind == Index::Kind::array; });
}
bool IndexTerms::has_index_arrays() const {
  return std::any_of(terms_.begin(), terms_.end(), [](const IndexTerm& t) {
    return t.kind == Index::Kind::array && t.array.ndim() > 0;
  });
}

std::int64_t IndexTerms::checked_integer(const IndexTerm& t) const {
  const std::int64_t n = type_.dims()[static_cast<std::size_t>(t.dim)];
  if (t.integer < -n || t.integer >= n) {
    throw ValueError("an index is out of range: " + std::to_string(t.integer) + " in dim " +
                     std::to_string(t.dim) + " of extent " + std::to_string(n) +
                     " of an array of type " + to_string(type_) + ": wanted " + std::to_string(-n) +
                     " ... " + std::to_string(n - 1) + at_line(source_));
  }
  return t.integer < 0 ? t.integer + n : t.integer;
}

std::int64_t IndexTerms::clip_range(const Range& r, std::int64_t n, std::int64_t& first,
                                    std::int64_t& end) const {
  if (r.step == 0) {
    throw ValueError("an index has a range with a step of 0: give another" + at_line(source_));
  }
  const bool up = r.step > 0;
  const auto clip = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + n : at, up ? 0 : -1, up ? n : n - 1);
  };
  const std::int64_t from = clip(r.start), to = clip(r.stop);
  first = end = 0;
  if (up ? from >= to : from <= to) return up ? 1 : -1;
  // A longer step than n leads out of the dim, as a step of n does.
  const std::int64_t by = up ? std::min(r.step, n) : r.step < -n ? n : -r.step;
  if (up) {
    first = from;
    end = to;
    return by;
  }
  first = from - (items_in_steps(to, from, by) - 1) * by;
  end = from + 1;
  return -by;
}

}  // namespace shmap
