// Printing values, formatted printing in the middle of a body, and drawings of shardings.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/array.h"

namespace shmap {

std::string to_string(const Array& x);  // as std::cout << x prints it

namespace debug {

namespace detail {
// An argument of print: an array, or the text of a host value. For a number, `dtype` and `bits`
// also hold its value as a bool, i64, u64 or f64, which a format spec needs.
struct PrintArgument {
  Array array;
  std::string text;
  bool is_number = false;
  DType dtype = DType::bool_;
  std::uint64_t bits = 0;
};
template <class T>
PrintArgument number_argument(std::string text, T value) {
  PrintArgument a{{}, std::move(text), true, dtype_of<T>, 0};
  __builtin_memcpy(&a.bits, &value, sizeof value);
  return a;
}
std::string text_of(bool value);
std::string text_of(long long value);
std::string text_of(unsigned long long value);
std::string text_of(double value);
std::string text_of(float value);
void print(std::string_view format, const std::vector<PrintArgument>& arguments, SourceLine source);
std::string format(std::string_view format, const std::vector<PrintArgument>& arguments,
                   SourceLine source);

template <class T>
PrintArgument argument(const T& value) {
  if constexpr (std::is_same_v<T, Array>) {
    return {value, {}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return number_argument(text_of(value), value);
  } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    return number_argument(text_of(static_cast<long long>(value)),
                           static_cast<std::int64_t>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return number_argument(text_of(static_cast<unsigned long long>(value)),
                           static_cast<std::uint64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return number_argument(text_of(value), static_cast<double>(value));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return {{}, std::string(std::string_view(value))};
  } else {
    return {{}, to_string(value)};  // a Shape, a PartitionSpec, a Mesh …
  }
}
}  // namespace detail

// A format string with one {} per argument ("{{" and "}}" are braces), together with the caller's
// line. {:spec} formats a number, or an array of rank 0, as std::format does: "{:.3f}", "{:>8}",
// "{:#x}".
struct Format {
  template <class S>
  requires std::is_convertible_v<const S&, std::string_view> Format(
      const S& s, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : text(s), source{file, line} {}
  std::string_view text;
  SourceLine source;
};

// Writes a line to standard output. Where an array varies over devices in a shard_map body, writes
// one line per local device, labelled with its mesh position; under vmap, one line per example.
// Called eagerly, print waits for the values. ValueError where the number of {} is not the number
// of arguments, or a spec does not fit its argument.
template <class... A>
void print(Format format, const A&... arguments) {
  detail::print(format.text, {detail::argument(arguments)...}, format.source);
}

// Draws on standard output which devices hold which part of a 1-D or 2-D array
// (jax.debug.visualize_array_sharding). draw_array_sharding returns the drawing as text instead.
// ValueError for an array of another rank; TypeError for an array without a sharding
// (Array::sharding).
void visualize_array_sharding(const Array& x, SourceLine source = SourceLine::current());
std::string draw_array_sharding(const Array& x, SourceLine source = SourceLine::current());

}  // namespace debug
}  // namespace shmap
