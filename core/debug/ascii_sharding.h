// Draws how an array is split over devices, as jax.debug.visualize_array_sharding does: a cell for
// each block of the array, labelled with the devices that hold the block.
#pragma once
#include <string>
#include <vector>

#include "shmap/shape.h"
#include "shmap/slice.h"

namespace shmap::debug {

// A device and the box of the array that it holds: a Slice for every dim.
struct ShardBox {
  std::string platform;  // "CPU"
  int id = 0;
  std::vector<Slice> index;
};

// Returns lines of box-drawing characters (UTF-8), each ended by a newline. The size of a cell is
// proportional to its block. Labels have the form "CPU 0,1", with the platform of
// shard_boxes.front(). Where JAX's drawing would exceed 80 columns and lose its labels, cells are
// narrower here. Columns that do not fit, rows beyond 32 and lists of more than 40 characters are
// elided in the middle.
//
//   ┌───────┬───────┐
//   │CPU 0,1│CPU 2,3│
//   └───────┴───────┘
//
// ValueErrors: the rank is not 1 or 2; there is no box; the boxes do not form a grid (a box outside
// of the shape, boxes that overlap partly, elements of the array without a device).
std::string draw_sharding(const Shape& shape, const std::vector<ShardBox>& boxes);

}  // namespace shmap::debug
