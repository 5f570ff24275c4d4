// FixedPlaces: memory of a captured program that inputs are copied to which come at ever new
// addresses. A graph reads and writes the addresses that it was captured with; where those are the
// program's own, it serves every call.
#pragma once
#include <cstdint>
#include <vector>

#include "core/device/buffer.h"
#include "core/ir/node.h"
#include "shmap/array.h"

namespace shmap {

class FixedPlaces {
 public:
  // block_types: of one device's block of each input.
  FixedPlaces(const detail::MeshImpl& mesh, std::vector<ShapedArray> block_types);

  bool has(std::size_t input) const { return places_[input].is_there; }
  // What its places take, or would.
  std::int64_t bytes(std::size_t input, const Array& value) const;
  std::int64_t bytes() const { return bytes_; }
  // Blocks that are one in `value` have one place. Where the input had places, whose blocks were
  // others' neighbours, each block gets one of its own. Throws OutOfMemory.
  void add(std::size_t input, const Array& value);
  // True where `value` can be copied to the places of that input.
  bool fit(std::size_t input, const Array& value) const;

  // Enqueues copies of the inputs that have places. The caller does not hold the submit mutex.
  void fill(const std::vector<Array>& inputs);
  // The inputs, with their places for those that have them.
  std::vector<Array> in_place_of(const std::vector<Array>& inputs) const;

 private:
  struct Place {
    bool is_there = false;
    std::int64_t bytes = 0;
    Array value;
    std::vector<std::uint32_t> leader;  // of each position: the first that shares its place
  };
  std::vector<std::uint32_t> leaders(const Array& value) const;

  const detail::MeshImpl& mesh_;
  std::vector<ShapedArray> block_types_;
  std::vector<Place> places_;
  std::int64_t bytes_ = 0;
};

}  // namespace shmap
