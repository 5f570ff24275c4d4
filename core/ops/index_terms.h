// The entries of an index, x[...] or x.at(...), with the dims to which they belong.
#pragma once
#include <span>
#include <vector>

#include "shmap/array.h"

namespace shmap {

// One entry, and its dim (none for a new dim). An ellipsis, and dims without an entry, are expanded
// to whole ranges; arrays that hold a host int are integers.
struct IndexTerm {
  Index::Kind kind;
  int dim = -1;
  std::int64_t integer = 0;
  Range range;
  Array array;
};

class IndexTerms {
 public:
  // For an array of that type. ValueErrors: more entries than dims, two ellipses. TypeError: an
  // index array that does not hold integers.
  IndexTerms(const ShapedArray& type, std::span<const Index> indices, SourceLine source);

  std::vector<IndexTerm>& terms() { return terms_; }
  auto begin() const { return terms_.begin(); }
  auto end() const { return terms_.end(); }
  // has_index_arrays: whether an entry is an array of rank 1 or more. has_arrays: of any rank.
  bool has_index_arrays() const;
  bool has_arrays() const;
  // The value of an integer entry in [0, extent). ValueError where it is out of range.
  std::int64_t checked_integer(const IndexTerm& t) const;
  // The items of a range in ascending order: [first, end) with step |step|. Returns the step, which
  // is negative for a range in descending order.
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
