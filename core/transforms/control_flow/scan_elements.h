// The types and shardings of the xs and ys of a scan, and of one element of them.
#pragma once
#include <cstdint>

#include "core/array/sharding.h"
#include "shmap/shaped_array.h"

namespace shmap {

ShapedArray element_type(const ShapedArray& xs);  // the type of one x
// the type of ys; the inverse of element_type
ShapedArray stacked_type(const ShapedArray& y, std::int64_t length);
// Shardings around a scan: xs with dim 0 whole, as the scan needs them; one element of such xs; and
// ys, from the sharding of one y.
const Sharding* whole_in_front(const Sharding* xs);
const Sharding* element_sharding(const Sharding* xs);
const Sharding* stacked_sharding(const Sharding* y);

}  // namespace shmap
