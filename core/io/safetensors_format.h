// The header of a safetensors file. The bytes are not trusted: the result is a list of tensors that
// is consistent with the file's size, or a ValueError that says what is wrong.
//
// A file is the header's length (8 bytes, little endian), the header, and the tensors' bytes. The
// header is JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …},
// with an optional "__metadata__" of texts by name. Strict, as the reference implementation: no
// name and no key twice; tensors cover the data without holes or overlaps.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::io {

// Longer headers are ValueErrors, so that a file takes no more memory than its size and 16 MiB. In
// memory are the header's text, and 24 bytes for each tensor.
inline constexpr std::int64_t kSafetensorsMaxHeader = std::int64_t{16} << 20;

struct TensorEntry {
  DType dtype = DType::f32;
  Shape shape;
  std::int64_t begin = 0, end = 0;  // in the data
};

class SafetensorsHeader {
 public:
  // `text`: the header. `data_size`: the number of bytes after it. `name` begins messages.
  SafetensorsHeader(std::string text, std::int64_t data_size, std::string name);
  SafetensorsHeader(const SafetensorsHeader&) = delete;
  SafetensorsHeader& operator=(const SafetensorsHeader&) = delete;

  std::size_t size() const { return tensors_.size(); }
  std::string name(std::size_t i) const;  // in ascending order
  TensorEntry entry(std::size_t i) const;

 private:
  struct Tensor {
    std::uint32_t name, at;  // the offsets of its name and of its object in the text
    std::int64_t begin, bytes;
  };
  // text_at: the string at that offset. compare: orders two strings of the text.
  std::string text_at(std::uint32_t at) const;
  int compare(std::uint32_t a, std::uint32_t b) const;
  void check_metadata(std::size_t at, std::size_t* behind) const;
  TensorEntry read(std::size_t at, std::size_t* behind) const;
  void check_places(std::int64_t data_size) const;

  std::string text_, name_;
  std::vector<Tensor> tensors_;
};

// head: the 8 bytes of the length and the header, padded with spaces to a multiple of 8. Also the
// offset of each tensor in the file: tensors with wider elements come first, so that all are
// aligned. TypeError for prng_key; ValueError for a name that is not UTF-8, or "__metadata__".
struct SafetensorsLayout {
  std::string head;
  std::map<std::string, std::int64_t> offsets;
  std::int64_t bytes = 0;  // of the whole file
};
SafetensorsLayout layout_safetensors(const std::map<std::string, std::pair<DType, Shape>>& tensors,
                                     const std::string& name);

}  // namespace shmap::io
