// The header of safetensors files: any bytes give a ValueError, or tensors that take up the data
// and that read back the same when they are written.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "core/io/safetensors_format.h"
#include "shmap/error.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

// A header, a byte 0xff and as many bytes as it has of data.
std::vector<std::string> seeds() {
  const auto with_data = [](const std::string& header, std::size_t bytes) {
    return header + '\xff' + std::string(bytes, '\1');
  };
  return {
      with_data("{}", 0),
      with_data(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
      with_data(
          R"({"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],)"
          R"("data_offsets":[0,12]},"b":{"dtype":"BOOL","shape":[],"data_offsets":[12,13]}}  )",
          13),
      with_data(R"({ "x\u00e9\n": {"data_offsets": [4, 4], "shape": [0, 7], "dtype": "I64"},)"
                R"("y":{"dtype":"I16","shape":[1,1,2],"data_offsets":[0,4]} })",
                4),
      with_data(R"({"\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
  };
}

std::vector<std::string> dictionary() {
  return {"{",
          "}",
          "[",
          "]",
          ",",
          ":",
          "\"",
          "\\",
          "\\u0061",
          "\\ud800",
          "\\n",
          " ",
          "-",
          ".",
          "e",
          "\"dtype\"",
          "\"shape\"",
          "\"data_offsets\"",
          "\"__metadata__\"",
          "\"a\"",
          "\"F32\"",
          "\"F64\"",
          "\"I8\"",
          "\"U64\"",
          "\"BOOL\"",
          "\"BF16\"",
          "\"F8_E4M3\"",
          "[0,0]",
          "[0,8]",
          "[]",
          "0",
          "1",
          "9223372036854775807",
          "9223372036854775808",
          "4294967296",
          "1,1,1,1,1,1,1,1,",
          "\xff",
          "\xc3\xa9",
          "\xed\xa0\x80",
          "null",
          "true",
          R"("b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"};
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.rfind('\xff'), size);
  const auto bytes = static_cast<std::int64_t>(end == size ? 0 : size - end - 1);
  try {
    const io::SafetensorsHeader header(std::string(input.substr(0, end)), bytes, "fuzz");
    std::int64_t sum = 0;
    std::map<std::string, std::pair<DType, Shape>> tensors;
    for (std::size_t i = 0; i < header.size(); ++i) {
      const io::TensorEntry entry = header.entry(i);
      fuzz::require(entry.begin >= 0 && entry.begin <= entry.end && entry.end <= bytes,
                    "a tensor lies in the data");
      fuzz::require(checked_bytes(entry.shape, itemsize(entry.dtype)) == entry.end - entry.begin,
                    "a tensor has its bytes");
      sum += entry.end - entry.begin;
      const bool fresh =
          tensors.emplace(header.name(i), std::pair(entry.dtype, entry.shape)).second;
      fuzz::require(fresh, "no name is there twice");
    }
    fuzz::require(sum == bytes, "tensors take up the data");
    const io::SafetensorsLayout layout = io::layout_safetensors(tensors, "fuzz");
    fuzz::require(layout.bytes == static_cast<std::int64_t>(layout.head.size()) + bytes,
                  "a written file has the same data");
    const io::SafetensorsHeader again(layout.head.substr(8), bytes, "fuzz");
    fuzz::require(again.size() == header.size(), "a written header reads back the same");
    for (std::size_t i = 0; i < header.size(); ++i) {
      const io::TensorEntry a = header.entry(i), b = again.entry(i);
      fuzz::require(header.name(i) == again.name(i) && a.dtype == b.dtype && a.shape == b.shape,
                    "a written tensor reads back the same");
    }
  } catch (const ValueError& e) {
    fuzz::require_one_line(e.what());
  }
  return 0;
}
