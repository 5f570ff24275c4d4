// The header of a safetensors file, from bytes that nobody vouches for: whatever they are, the
// result is a list of tensors that the file's size bears out, or a ValueError that says what is
// wrong.
//
// A file is the header's length (8 bytes, little endian), the header, and the tensors' bytes. The
// header is JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …}, and
// perhaps "__metadata__", texts by name. Strict, as the format's authors are: no name and no key
// twice, tensors that take up the data without holes or overlaps.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::io {

// Longer headers are refused, so that a file takes no more memory than its size and 16 MiB: of the
// header its text is kept, and 24 bytes a tensor.
inline constexpr std::int64_t kSafetensorsMaxHeader = std::int64_t{16} << 20;

struct TensorEntry {
  DType dtype = DType::f32;
  Shape shape;
  std::int64_t begin = 0, end = 0;  // in the data
};

class SafetensorsHeader {
 public:
  // `text`: the header. `data_size`: the bytes behind it. `name` starts messages.
  SafetensorsHeader(std::string text, std::int64_t data_size, std::string name);
  SafetensorsHeader(const SafetensorsHeader&) = delete;
  SafetensorsHeader& operator=(const SafetensorsHeader&) = delete;

  std::size_t size() const { return tensors_.size(); }
  std::string name(std::size_t i) const;  // ascending
  TensorEntry entry(std::size_t i) const;

 private:
  struct Tensor {
    std::uint32_t name, at;  // where in the text its name and its object begin
    std::int64_t begin, bytes;
  };
  // The string that begins there: whether it is another's, or comes before it.
  std::string text_at(std::uint32_t at) const;
  int compare(std::uint32_t a, std::uint32_t b) const;
  void check_metadata(std::size_t at, std::size_t* behind) const;
  TensorEntry read(std::size_t at, std::size_t* behind) const;
  void check_places(std::int64_t data_size) const;

  std::string text_, name_;
  std::vector<Tensor> tensors_;
};

// The 8 bytes of the length and the header, padded with spaces to a multiple of 8; and where the
// bytes of each tensor begin in the file: those of wide elements come first, so that all are
// aligned. TypeError for prng_key; ValueError for a name that is no UTF-8, or "__metadata__".
struct SafetensorsLayout {
  std::string head;
  std::map<std::string, std::int64_t> offsets;
  std::int64_t bytes = 0;  // of the whole file
};
SafetensorsLayout layout_safetensors(const std::map<std::string, std::pair<DType, Shape>>& tensors,
                                     const std::string& name);

}  // namespace shmap::io
