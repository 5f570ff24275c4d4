#include "tests/support/golden.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shmap/error.h"
#include "shmap/half.h"

namespace shmap::testing {
namespace {

using Json = nlohmann::json;

DType dtype_named(const std::string& name) {
  for (int t = 0; t < kDTypeCount; ++t) {
    if (name == short_name(static_cast<DType>(t))) return static_cast<DType>(t);
  }
  throw ValueError("golden values: no dtype is called '" + name + "'");
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// The low itemsize(dtype) bytes of `bits`.
void append_bits(std::vector<std::byte>& bytes, std::uint64_t bits, DType dtype) {
  switch (itemsize(dtype)) {
    case 1:
      return append(bytes, static_cast<std::uint8_t>(bits));
    case 2:
      return append(bytes, static_cast<std::uint16_t>(bits));
    case 4:
      return append(bytes, static_cast<std::uint32_t>(bits));
    default:
      return append(bytes, bits);
  }
}

std::uint64_t bits_of(std::int64_t value, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f16:
      return float_to_half_bits(static_cast<float>(value));
    case DType::bf16:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16;
    default:
      return static_cast<std::uint64_t>(value);
  }
}

GoldenArray read_array(const Json& json) {
  GoldenArray out;
  out.dtype = dtype_named(json.at("dtype").get<std::string>());
  out.shape = Shape(json.at("shape").get<std::vector<std::int64_t>>());
  const std::int64_t count = out.shape.num_elements();
  if (json.contains("arange")) {
    const auto line = json["arange"].get<std::vector<std::int64_t>>();
    for (std::int64_t k = 0; k < count; ++k)
      append_bits(out.bytes, bits_of(line.at(0) + k * line.at(1), out.dtype), out.dtype);
  } else if (json.contains("bits")) {
    const auto& hex = json["bits"].get_ref<const std::string&>();
    const std::size_t width = 2 * static_cast<std::size_t>(itemsize(out.dtype));
    for (std::size_t at = 0; at + width <= hex.size(); at += width)
      append_bits(out.bytes, std::stoull(hex.substr(at, width), nullptr, 16), out.dtype);
  } else {
    for (const Json& v : json.at("ints")) {
      const std::uint64_t bits = v.is_number_unsigned()
                                     ? v.get<std::uint64_t>()
                                     : static_cast<std::uint64_t>(v.get<std::int64_t>());
      append_bits(out.bytes, bits, out.dtype);
    }
  }
  if (static_cast<std::int64_t>(out.bytes.size()) != count * itemsize(out.dtype))
    throw ValueError("golden values: " + std::to_string(out.bytes.size()) + " bytes for an array " +
                     to_string(out.dtype) + to_string(out.shape));
  return out;
}

double float_at(const std::byte* p, DType dtype) {
  switch (dtype) {
    case DType::f64: {
      double v;
      std::memcpy(&v, p, sizeof v);
      return v;
    }
    case DType::f32: {
      float v;
      std::memcpy(&v, p, sizeof v);
      return v;
    }
    default: {
      std::uint16_t v;
      std::memcpy(&v, p, sizeof v);
      return dtype == DType::f16 ? half_bits_to_float(v)
                                 : std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
    }
  }
}

std::uint64_t raw_at(const std::byte* p, DType dtype) {
  std::uint64_t v = 0;
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&v, p, static_cast<std::size_t>(itemsize(dtype)));
  return v;
}

// Floats in the order of their values as integers; -0 and +0 both map to 0.
std::int64_t ordered(std::uint64_t bits, DType dtype) {
  const std::uint64_t sign = std::uint64_t{1} << (8 * itemsize(dtype) - 1);
  const auto magnitude = static_cast<std::int64_t>(bits & (sign - 1));
  return bits & sign ? -magnitude : magnitude;
}

// The distance of `a` and `b` in units in the last place; 0 also for two NaNs.
std::uint64_t ulp_distance(const std::byte* a, const std::byte* b, DType dtype) {
  const bool nan_a = std::isnan(float_at(a, dtype)), nan_b = std::isnan(float_at(b, dtype));
  if (nan_a || nan_b) return nan_a == nan_b ? 0 : ~std::uint64_t{0};
  const auto x = static_cast<std::uint64_t>(ordered(raw_at(a, dtype), dtype));
  const auto y = static_cast<std::uint64_t>(ordered(raw_at(b, dtype), dtype));
  const std::uint64_t d = x - y;
  return static_cast<std::int64_t>(d) < 0 ? std::uint64_t{0} - d : d;
}

std::string element(const std::byte* p, DType dtype) {
  char text[64];
  const std::uint64_t raw = raw_at(p, dtype);
  if (is_floating(dtype)) {
    std::snprintf(text, sizeof text, "%.17g (0x%llx)", float_at(p, dtype),
                  static_cast<unsigned long long>(raw));
    return text;
  }
  if (!is_signed_int(dtype)) return std::to_string(raw);
  const int unused = 64 - 8 * itemsize(dtype);
  return std::to_string(static_cast<std::int64_t>(raw << unused) >> unused);
}

std::string index_text(std::int64_t flat, const Shape& shape) {
  std::string out;
  for (std::size_t d = shape.size(); d-- > 0;) {
    out = std::to_string(flat % shape[d]) + (out.empty() ? "" : ", ") + out;
    flat /= shape[d];
  }
  return "[" + out + "]";
}

}  // namespace

struct GoldenParams::Values {
  std::string owner;  // the case's name
  Json json;

  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    throw ValueError("golden case '" + owner + "': parameter '" + name + "' " + why + " (it has " +
                     json.dump().substr(0, 200) + ")");
  }
  const Json& at(const std::string& name) const {
    if (!json.contains(name)) refuse(name, "is absent");
    return json[name];
  }
  template <class T>
  T as(const std::string& name) const {
    try {
      return at(name).get<T>();
    } catch (const Json::exception& e) {
      refuse(name, std::string("has another type: ") + e.what());
    }
  }
};

const GoldenParams::Values& GoldenParams::get(const std::string& name) const {
  if (!values_) throw ValueError("golden parameter '" + name + "' asked of an empty case");
  return *values_;
}
bool GoldenParams::has(const std::string& name) const { return get(name).json.contains(name); }
bool GoldenParams::is_list(const std::string& name) const { return get(name).at(name).is_array(); }
std::string GoldenParams::text(const std::string& name) const {
  return get(name).as<std::string>(name);
}
std::int64_t GoldenParams::integer(const std::string& name) const {
  return get(name).as<std::int64_t>(name);
}
double GoldenParams::number(const std::string& name) const { return get(name).as<double>(name); }
bool GoldenParams::flag(const std::string& name) const { return get(name).as<bool>(name); }
std::vector<std::int64_t> GoldenParams::ints(const std::string& name) const {
  if (!is_list(name)) return {integer(name)};
  return get(name).as<std::vector<std::int64_t>>(name);
}
std::vector<std::string> GoldenParams::texts(const std::string& name) const {
  if (!is_list(name)) return {text(name)};
  return get(name).as<std::vector<std::string>>(name);
}
std::vector<std::vector<std::int64_t>> GoldenParams::int_lists(const std::string& name) const {
  return get(name).as<std::vector<std::vector<std::int64_t>>>(name);
}
std::int64_t GoldenParams::integer_or(const std::string& name, std::int64_t otherwise) const {
  return has(name) ? integer(name) : otherwise;
}
bool GoldenParams::flag_or(const std::string& name, bool otherwise) const {
  return has(name) ? flag(name) : otherwise;
}

std::vector<GoldenCase> load_golden(const std::string& topic) {
  const std::string path = std::string(SHMAP_GOLDEN_DIR) + "/" + topic + ".json";
  std::ifstream file(path);
  if (!file) throw ValueError("golden values: cannot open " + path);
  std::vector<GoldenCase> cases;
  try {
    const Json json = Json::parse(file);
    for (const Json& entry : json.at("cases")) {
      GoldenCase one;
      one.name = entry.at("name").get<std::string>();
      one.params = GoldenParams(std::make_shared<const GoldenParams::Values>(
          GoldenParams::Values{one.name, entry.at("params")}));
      for (const Json& a : entry.at("inputs")) one.inputs.push_back(read_array(a));
      for (const Json& a : entry.at("outputs")) one.outputs.push_back(read_array(a));
      cases.push_back(std::move(one));
    }
  } catch (const Json::exception& e) {
    throw ValueError("golden values: " + path + ": " + e.what());
  }
  return cases;
}

std::string golden_diff(const GoldenArray& want, const void* got, DType got_dtype,
                        const Shape& got_shape, int max_ulp, double atol) {
  if (want.dtype != got_dtype)
    return "dtype: want " + to_string(want.dtype) + ", got " + to_string(got_dtype);
  if (!(want.shape == got_shape))
    return "shape: want " + to_string(want.shape) + ", got " + to_string(got_shape);
  const std::int64_t count = want.shape.num_elements();
  const int size = itemsize(want.dtype);
  const auto* have = static_cast<const std::byte*>(got);
  std::int64_t differing = 0;
  std::string first;
  for (std::int64_t k = 0; k < count; ++k) {
    const std::byte *a = want.bytes.data() + k * size, *b = have + k * size;
    std::uint64_t ulp = 0;
    if (is_floating(want.dtype)) {
      ulp = ulp_distance(a, b, want.dtype);
      const double x = float_at(a, want.dtype), y = float_at(b, want.dtype);
      const bool sign_differs =
          max_ulp == 0 && x == 0 && y == 0 && std::signbit(x) != std::signbit(y);
      if (ulp <= static_cast<std::uint64_t>(max_ulp) && !sign_differs) continue;
      if (atol > 0 && std::abs(x - y) <= atol) continue;
    } else if (std::memcmp(a, b, static_cast<std::size_t>(size)) == 0) {
      continue;
    }
    if (differing++ > 0) continue;
    first = "at " + index_text(k, want.shape) + ": want " + element(a, want.dtype) + ", got " +
            element(b, want.dtype);
    if (ulp != 0 && ulp != ~std::uint64_t{0}) first += ", " + std::to_string(ulp) + " ulp apart";
  }
  if (differing == 0) return "";
  return first + " (" + std::to_string(differing) + " of " + std::to_string(count) + " differ)";
}

GoldenDistance golden_distance(const GoldenArray& want, const void* got) {
  const int size = itemsize(want.dtype);
  const auto* have = static_cast<const std::byte*>(got);
  GoldenDistance most;
  for (std::int64_t k = 0; k < want.shape.num_elements() && is_floating(want.dtype); ++k) {
    const std::byte *a = want.bytes.data() + k * size, *b = have + k * size;
    const double x = float_at(a, want.dtype), y = float_at(b, want.dtype);
    if (!std::isfinite(x)) continue;
    most.ulp = std::max(most.ulp, ulp_distance(a, b, want.dtype));
    most.absolute = std::max(most.absolute, std::abs(x - y));
  }
  return most;
}

}  // namespace shmap::testing
