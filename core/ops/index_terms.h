// The entries of an index, x[...] or x.at(...), beside the dims that they belong to.
#pragma once
#include <span>
#include <vector>

#include "shmap/array.h"

namespace shmap {

// One entry, and the dim that it belongs to (a new dim belongs to none). An ellipsis, and dims that
// no entry was given for, have become whole ranges; host ints in arrays, integers.
struct IndexTerm {
  Index::Kind kind;
  int dim = -1;
  std::int64_t integer = 0;
  Range range;
  Array array;
};

class IndexTerms {
 public:
  // Of an array of that type. ValueError: more dims than it has, two ellipses; TypeError: an array
  // that does not hold integers.
  IndexTerms(const ShapedArray& type, std::span<const Index> indices, SourceLine source);

  std::vector<IndexTerm>& terms() { return terms_; }
  auto begin() const { return terms_.begin(); }
  auto end() const { return terms_.end(); }
  // Whether some entry is an array of one dim or more; of any.
  bool has_index_arrays() const;
  bool has_arrays() const;
  // An integer entry as 0 ... extent - 1. ValueError where it is out of range.
  std::int64_t checked_integer(const IndexTerm& t) const;
  // The items of a range in ascending order: [first, end) in steps of |step|. Returns the step,
  // which is negative where they are wanted in descending order.
  std::int64_t clip_range(const Range& r, std::int64_t extent, std::int64_t& first,
                          std::int64_t& end) const;

 private:
  void add(const Index& index);

  const ShapedArray& type_;
  SourceLine source_;
  std::vector<IndexTerm> terms_;
  int dims_ = 0;
};

}  // namespace shmap
