// A drawing of how an array is split over devices, as jax.debug.visualize_array_sharding draws it:
// one cell for each part of the index space, in its place, with the devices that hold it.
#pragma once
#include <string>
#include <vector>

#include "shmap/shape.h"
#include "shmap/slice.h"

namespace shmap::debug {

// The part of an array that a device holds: a Slice for every dim.
struct ShardBox {
  std::string platform;  // "CPU"
  int id = 0;
  std::vector<Slice> index;
};

// Lines of box-drawing characters (UTF-8), each ended by a newline. The size of a cell follows its
// part of the array, and the labels of shard_boxes.front()'s platform are "CPU 0,1". Where JAX's
// drawing would pass 80 columns, and lose its labels, cells become narrower here; more columns than
// fit, more than 32 rows and lists of more than 40 characters are shortened in the middle.
//
//   ┌───────┬───────┐
//   │CPU 0,1│CPU 2,3│
//   └───────┴───────┘
//
// ValueError where the rank is not 1 or 2, where there is no box, or where the boxes are no grid: a
// box not within the shape, two that overlap in part, a part of the array that no device holds.
std::string draw_sharding(const Shape& shape, const std::vector<ShardBox>& boxes);

}  // namespace shmap::debug
