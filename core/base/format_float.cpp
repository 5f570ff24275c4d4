#include "core/base/format_float.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/base/element_type.h"
#include "shmap/error.h"

namespace shmap::detail {

namespace {

// "-d.ddde±xx" as std::to_chars writes it, taken apart.
Decimal parse_scientific(const char* first, const char* last) {
  Decimal d;
  const char* p = first;
  if (p != last && *p == '-') {
    d.negative = true;
    ++p;
  }
  for (; p != last && *p != 'e'; ++p)
    if (*p != '.') d.digits[d.count++] = *p;
  if (p != last) {
    ++p;
    const bool down = *p == '-';
    ++p;
    int e = 0;
    for (; p != last; ++p) e = e * 10 + (*p - '0');
    d.exponent = down ? -e : e;
  }
  return d;
}

void trim_zeros(Decimal& d) {
  while (d.count > 1 && d.digits[d.count - 1] == '0') --d.count;
}

template <class T>
Decimal shortest(T value) {
  char text[64];
  const auto r = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific);
  Decimal d = parse_scientific(text, r.ptr);
  trim_zeros(d);
  return d;
}

double power_of_ten(int e) { return std::pow(10.0, e); }

template <class T>
T load(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// The two choices that NumPy makes for a scalar; `limit` depends on the type.
template <class T>
std::string format_floating(T value, double limit) {
  const double v = static_cast<double>(value);
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  const Decimal d = shortest_decimal(value);
  const double a = std::fabs(v);
  if (a == 0 || (a >= 1e-4 && a < limit)) {
    std::string s = positional(d);
    return s.back() == '.' ? s + "0" : s;
  }
  std::string s = scientific(d, 0, 2);
  if (d.count == 1) s.erase(s.find('.'), 1);
  return s;
}

}  // namespace

Decimal shortest_decimal(double value) { return shortest(value); }
Decimal shortest_decimal(float value) { return shortest(value); }

Decimal shortest_decimal(float16 value) {
  const std::uint16_t magnitude = value.bits & 0x7fffu;
  Decimal d;
  d.negative = (value.bits & 0x8000u) != 0;
  if (magnitude == 0) {
    d.digits[d.count++] = '0';
    return d;
  }
  // Every number between the midpoints to the value's neighbours reads back as the value, and so do
  // the midpoints if the value's last bit is even. All of these are exact in a double; a decimal of
  // five digits either equals one of them or is farther from it than a double's rounding error.
  float16 below, above;
  below.bits = static_cast<std::uint16_t>(magnitude - 1);
  const double v = half_bits_to_float(magnitude);
  const double low = (v + static_cast<double>(below)) / 2;
  double high = 65520.0;
  if (magnitude != 0x7bffu) {
    above.bits = static_cast<std::uint16_t>(magnitude + 1);
    high = (v + static_cast<double>(above)) / 2;
  }
  const bool even = (magnitude & 1u) == 0;
  const auto reads_back = [&](double x) {
    return (x > low && x < high) || (even && (x == low || x == high));
  };
  int exponent = static_cast<int>(std::floor(std::log10(v)));
  for (int count = 1;; ++count) {
    const int place = exponent - count + 1;  // the power of ten of the last digit
    // A negative power of ten is not a double, so that the loop divides by the positive one and
    // rounds once.
    const auto scaled = [&](double n) {
      return place < 0 ? n / power_of_ten(-place) : n * power_of_ten(place);
    };
    const double units = place < 0 ? v * power_of_ten(-place) : v / power_of_ten(place);
    const double down = std::floor(units), up = down + 1;
    const bool down_ok = reads_back(scaled(down)), up_ok = reads_back(scaled(up));
    if (!down_ok && !up_ok) continue;
    double digits = up_ok ? up : down;
    if (down_ok && up_ok) {
      const double rest = units - down;
      const bool odd = std::fmod(down, 2.0) != 0;
      digits = rest < 0.5 || (rest == 0.5 && !odd) ? down : up;
    }
    const auto r = std::to_chars(d.digits, d.digits + sizeof d.digits, static_cast<long>(digits));
    d.count = static_cast<int>(r.ptr - d.digits);
    d.exponent = place + d.count - 1;
    trim_zeros(d);
    return d;
  }
}

Decimal rounded_decimal(double value, int count) {
  char text[64];
  const auto r =
      std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, count - 1);
  return parse_scientific(text, r.ptr);
}

std::string positional(const Decimal& d) {
  std::string s = d.negative ? "-" : "";
  if (d.exponent < 0) {
    s += "0.";
    s.append(static_cast<std::size_t>(-d.exponent - 1), '0');
    s.append(d.digits, static_cast<std::size_t>(d.count));
    return s;
  }
  const int whole = d.exponent + 1;
  for (int i = 0; i < whole; ++i) s += i < d.count ? d.digits[i] : '0';
  s += '.';
  for (int i = whole; i < d.count; ++i) s += d.digits[i];
  // A value of zero is written "0.", as its one digit already stands before the point.
  return s;
}

std::string scientific(const Decimal& d, int fraction_digits, int exponent_digits) {
  std::string s = d.negative ? "-" : "";
  s += d.digits[0];
  s += '.';
  s.append(d.digits + 1, static_cast<std::size_t>(d.count - 1));
  for (int i = d.count - 1; i < fraction_digits; ++i) s += '0';
  s += d.exponent < 0 ? "e-" : "e+";
  const std::string e = std::to_string(std::abs(d.exponent));
  for (int i = static_cast<int>(e.size()); i < exponent_digits; ++i) s += '0';
  return s + e;
}

std::string format_bfloat16(bfloat16 value) {
  const float v = value;
  if (std::isnan(v)) return "nan";  // of either sign
  char text[32];
  const auto r = std::to_chars(text, text + sizeof text, v, std::chars_format::general, 6);
  return std::string(text, r.ptr);
}

std::string format_scalar(const void* element, DType dtype) {
  if (dtype == DType::prng_key)
    throw TypeError("format_scalar: a random key (key<fry>) is not a number");
  return with_plain(dtype, [element]<class T>() -> std::string {
    const T value = load<T>(element);
    if constexpr (std::is_same_v<T, bool>)
      return value ? "True" : "False";
    else if constexpr (std::is_same_v<T, float16>)
      return format_floating(value, 1e3);
    else if constexpr (std::is_same_v<T, bfloat16>)
      return format_bfloat16(value);
    else if constexpr (std::is_same_v<T, float>)
      return format_floating(value, 1e6);
    else if constexpr (std::is_same_v<T, double>)
      return format_floating(value, 1e16);
    else
      return std::to_string(value);
  });
}

}  // namespace shmap::detail
