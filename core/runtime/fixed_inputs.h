// FixedInputs: memory of a captured program into which inputs whose addresses differ from call to
// call are copied. A graph reads and writes the addresses with which it was captured; a graph
// captured with these fixed addresses serves every call.
#pragma once
#include <cstdint>
#include <vector>

#include "core/device/buffer.h"
#include "core/ir/node.h"
#include "shmap/array.h"

namespace shmap {

class FixedInputs {
 public:
  // block_types: the type of one device's block of each input.
  FixedInputs(const detail::MeshImpl& mesh, std::vector<ShapedArray> block_types);

  bool has(std::size_t input) const { return inputs_[input].is_there; }
  // The bytes of an input's fixed memory, or the bytes that it would need.
  std::int64_t bytes(std::size_t input, const Array& value) const;
  std::int64_t bytes() const { return bytes_; }
  // Gives the input fixed memory, in which devices share a block as they do in `value`. Where the
  // input has fixed memory already, and its devices share blocks in another way, every device gets
  // a block of its own. Throws OutOfMemory.
  void add(std::size_t input, const Array& value);
  // Gives all fixed memory up.
  void clear() noexcept;
  std::int64_t block_bytes(std::size_t input) const { return block_types_[input].nbytes(); }
  // Whether `value` can be copied to the fixed memory of the input.
  bool fit(std::size_t input, const Array& value) const;

  // Enqueues copies of the inputs that have fixed memory. The caller does not hold the submit
  // mutex.
  void fill(const std::vector<Array>& inputs);
  // Returns the inputs, with fixed memory in place of the inputs that have it.
  std::vector<Array> in_place_of(const std::vector<Array>& inputs) const;

 private:
  struct Fixed {
    bool is_there = false;
    std::int64_t bytes = 0;
    Array value;
    std::vector<std::uint32_t> leader;  // by position: the first position that shares its block
  };
  std::vector<std::uint32_t> leaders(const Array& value) const;

  const detail::MeshImpl& mesh_;
  std::vector<ShapedArray> block_types_;
  std::vector<Fixed> inputs_;
  std::int64_t bytes_ = 0;
};

}  // namespace shmap
