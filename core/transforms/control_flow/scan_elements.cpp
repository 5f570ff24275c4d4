#include "core/transforms/control_flow/scan_elements.h"

#include <utility>
#include <vector>

namespace shmap {

namespace {

const Sharding* with_entries(const Sharding* s, std::vector<PartitionSpec::Entry> entries) {
  return s->mesh()->sharding(PartitionSpec(std::move(entries)));
}

}  // namespace

ShapedArray element_type(const ShapedArray& xs) {
  Shape shape;
  for (std::size_t d = 1; d < xs.dims().size(); ++d) shape.push_back(xs.dims()[d]);
  return ShapedArray(shape, xs.dtype(), xs.weak(), xs.axes());
}

ShapedArray stacked_type(const ShapedArray& y, std::int64_t length) {
  Shape shape;
  shape.push_back(length);
  for (std::int64_t e : y.dims()) shape.push_back(e);
  return ShapedArray(shape, y.dtype(), y.weak(), y.axes());
}

const Sharding* whole_in_front(const Sharding* xs) {
  std::vector<PartitionSpec::Entry> entries = xs->spec().entries();
  if (!entries.empty()) entries[0] = none;
  return with_entries(xs, std::move(entries));
}

const Sharding* element_sharding(const Sharding* xs) {
  std::vector<PartitionSpec::Entry> entries = xs->spec().entries();
  if (!entries.empty()) entries.erase(entries.begin());
  return with_entries(xs, std::move(entries));
}

const Sharding* stacked_sharding(const Sharding* y) {
  std::vector<PartitionSpec::Entry> entries = y->spec().entries();
  if (!entries.empty()) entries.insert(entries.begin(), none);
  return with_entries(y, std::move(entries));
}

}  // namespace shmap
