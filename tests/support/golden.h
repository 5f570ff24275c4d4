// The golden values of tests/golden/<topic>.json: inputs, parameters and outputs of calls, computed
// by JAX with tests/golden/generate.py and checked in.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::testing {

struct GoldenArray {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;  // row-major, in the host's byte order

  // The elements as T, whose size must be the dtype's.
  template <class T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

// The parameters of a case by name. A name that is absent, or whose value is of another type, is a
// ValueError that says which case, which name and what it holds.
class GoldenParams {
 public:
  bool has(const std::string& name) const;
  bool is_list(const std::string& name) const;
  std::string text(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  bool flag(const std::string& name) const;
  std::vector<std::int64_t> ints(const std::string& name) const;  // of a list, or of one integer
  std::vector<std::string> texts(const std::string& name) const;  // a list of texts, or one text
  // A list of lists of integers: permutations, groups, widths.
  std::vector<std::vector<std::int64_t>> int_lists(const std::string& name) const;
  // The same with a value for an absent name.
  std::int64_t integer_or(const std::string& name, std::int64_t otherwise) const;
  bool flag_or(const std::string& name, bool otherwise) const;

  struct Values;
  GoldenParams() = default;
  explicit GoldenParams(std::shared_ptr<const Values> values) : values_(std::move(values)) {}

 private:
  const Values& get(const std::string& name) const;
  std::shared_ptr<const Values> values_;
};

struct GoldenCase {
  std::string name;
  GoldenParams params;
  std::vector<GoldenArray> inputs;
  std::vector<GoldenArray> outputs;
};

// Every case of tests/golden/<topic>.json, in the file's order. ValueError where the file is absent
// or malformed.
std::vector<GoldenCase> load_golden(const std::string& topic);

// "" where `got` (row-major elements of got_dtype and got_shape) equals `want`, else what differs:
// dtype, shape, or the first element (its index, both values, their distance) and how many do.
// Integers and bool must be equal. Floats may be max_ulp units in the last place apart, or `atol`;
// NaN equals NaN, and with max_ulp = 0 zeros must have the same sign.
std::string golden_diff(const GoldenArray& want, const void* got, DType got_dtype,
                        const Shape& got_shape, int max_ulp, double atol = 0);

// The largest distance of an element of `got`, of the same dtype and shape, from the golden value
// of floats that is no infinity and no NaN: in units in the last place, and absolute.
struct GoldenDistance {
  std::uint64_t ulp = 0;
  double absolute = 0;
};
GoldenDistance golden_distance(const GoldenArray& want, const void* got);

}  // namespace shmap::testing
