#include "core/array/print_array.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/base/element_type.h"
#include "core/base/format_float.h"

namespace shmap::detail {

namespace {

constexpr std::int64_t kThreshold = 1000;  // an array of more elements is summarised
constexpr std::int64_t kEdgeItems = 3;
constexpr int kLineWidth = 75;
constexpr int kPrecision = 8;

std::string padded_left(std::string s, std::size_t width) {
  if (s.size() < width) s.insert(0, width - s.size(), ' ');
  return s;
}

bool is_elided(std::int64_t extent, bool summarised) {
  return summarised && extent > 2 * kEdgeItems;
}

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// The elements to show, in the order of printing.
class Visible {
 public:
  Visible(const std::byte* data, int itemsize, const Shape& shape, bool summarised)
      : shape_(shape), summarised_(summarised) {
    strides_.resize(shape.size());
    std::int64_t stride = itemsize;
    for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides_[d] = stride;
    collect(data, 0);
  }
  const std::vector<const std::byte*>& elements() const { return elements_; }

 private:
  void collect(const std::byte* base, std::size_t dim) {
    if (dim == shape_.size()) {
      elements_.push_back(base);
      return;
    }
    const std::int64_t n = shape_[dim];
    for (std::int64_t i = 0; i < n; ++i) {
      if (i == kEdgeItems && is_elided(n, summarised_)) i = n - kEdgeItems;
      collect(base + i * strides_[dim], dim + 1);
    }
  }

  const Shape& shape_;
  bool summarised_;
  std::vector<std::int64_t> strides_;
  std::vector<const std::byte*> elements_;
};

// NumPy chooses fixed or scientific notation by the largest and smallest magnitude in the array's
// own precision. The cutoff is the dtype's decimal precision, 8 at most.
template <class T>
double scientific_cutoff() {
  return sizeof(T) == 2 ? 1e3 : sizeof(T) == 4 ? 1e6 : 1e8;
}
template <class T>
bool wants_scientific(T largest, T smallest) {
  const T small = static_cast<T>(0.0001f);
  if constexpr (std::is_same_v<T, double>) {
    return largest >= scientific_cutoff<T>() || smallest < 0.0001 || largest / smallest > 1000.0;
  } else {
    const T ratio = static_cast<T>(static_cast<float>(largest) / static_cast<float>(smallest));
    return static_cast<float>(largest) >= static_cast<float>(scientific_cutoff<T>()) ||
           static_cast<float>(smallest) < static_cast<float>(small) ||
           static_cast<float>(ratio) > 1000.0f;
  }
}

// Returns "d.dddd" with at most kPrecision fractional digits and without trailing zeros.
Decimal fixed_digits(Decimal shortest, double value) {
  if (shortest.count - 1 - shortest.exponent <= kPrecision) return shortest;
  char text[64];
  const auto r =
      std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, kPrecision);
  // Extract the digits: drop the sign, the point, and the zeros at both ends.
  Decimal d;
  d.negative = shortest.negative;
  const char* p = text + (text[0] == '-');
  const char* point = std::find(p, static_cast<const char*>(r.ptr), '.');
  d.exponent = static_cast<int>(point - p) - 1;
  bool leading = true;
  for (; p != r.ptr; ++p) {
    if (*p == '.') continue;
    if (leading && *p == '0') {
      --d.exponent;
      continue;
    }
    leading = false;
    d.digits[d.count++] = *p;
  }
  while (d.count > 1 && d.digits[d.count - 1] == '0') --d.count;
  return d;
}

int digit_count(int v) { return v >= 100 ? 3 : 2; }

template <class T>
bool uses_exponents(const std::vector<const std::byte*>& elements) {
  double largest = 0, smallest = HUGE_VAL;
  for (const std::byte* p : elements) {
    const double v = std::fabs(static_cast<double>(load<T>(p)));
    if (!std::isfinite(v) || v == 0) continue;
    largest = std::max(largest, v);
    smallest = std::min(smallest, v);
  }
  const auto narrow = [](double v) {
    if constexpr (std::is_same_v<T, double>)
      return v;
    else
      return static_cast<T>(static_cast<float>(v));
  };
  return largest > 0 && wants_scientific<T>(narrow(largest), narrow(smallest));
}

// The columns in which an array's floats are written, all in one notation.
struct FloatColumns {
  bool exponents;
  std::size_t left = 0, right = 0;  // of the point; `right` is not known yet with exponents
  int fraction = 0, exponent_digits = 0;

  // The digits of a finite number. Widens the columns for it.
  template <class T>
  Decimal add(T value) {
    const auto v = static_cast<double>(value);
    Decimal d = shortest_decimal(value);
    if (!exponents) {
      d = fixed_digits(d, v);
      const int whole = std::max(d.exponent, 0) + 1 + (d.negative ? 1 : 0);
      left = std::max(left, static_cast<std::size_t>(whole));
      right = std::max(right, static_cast<std::size_t>(std::max(d.count - 1 - d.exponent, 0)));
      return d;
    }
    if (d.count - 1 > kPrecision) {
      d = rounded_decimal(v, kPrecision + 1);
      while (d.count > 1 && d.digits[d.count - 1] == '0') --d.count;
    }
    fraction = std::max(fraction, d.count - 1);
    exponent_digits = std::max(exponent_digits, digit_count(std::abs(d.exponent)));
    left = std::max<std::size_t>(left, d.negative ? 2 : 1);
    return d;
  }
  std::string word(Decimal d, double v) const {
    if (exponents) {
      // Digits beyond the shortest representation are the value's exact digits, not zeros: 0.1f
      // prints as 1.00000001e-01.
      if (d.count - 1 < fraction && d.digits[0] != '0') d = rounded_decimal(v, fraction + 1);
      return scientific(d, fraction, exponent_digits);
    }
    std::string s = positional(d);
    s.append(right - (s.size() - s.find('.') - 1), ' ');
    return s;
  }
};

template <class T>
std::vector<std::string> format_floats(const std::vector<const std::byte*>& elements) {
  FloatColumns columns{uses_exponents<T>(elements)};
  std::vector<Decimal> decimals(elements.size());
  std::size_t widest_special = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const T value = load<T>(elements[i]);
    const auto v = static_cast<double>(value);
    if (std::isfinite(v)) {
      decimals[i] = columns.add(value);
    } else {
      widest_special = std::max<std::size_t>(widest_special, v < 0 ? 4 : 3);  // "-inf"
    }
  }
  if (columns.exponents)
    columns.right = static_cast<std::size_t>(columns.exponent_digits + 2 + columns.fraction);
  const std::size_t width = std::max(columns.left + 1 + columns.right, widest_special);
  std::vector<std::string> words;
  words.reserve(elements.size());
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto v = static_cast<double>(load<T>(elements[i]));
    words.push_back(padded_left(std::isfinite(v) ? columns.word(decimals[i], v)
                                : std::isnan(v)  ? "nan"
                                : v < 0          ? "-inf"
                                                 : "inf",
                                width));
  }
  return words;
}

std::vector<std::string> format_elements(const std::vector<const std::byte*>& elements,
                                         DType dtype) {
  if (is_floating(dtype) && dtype != DType::bf16) {
    return with_float(dtype, [&]<class T>() -> std::vector<std::string> {
      if constexpr (std::is_same_v<T, bfloat16>)
        return {};
      else
        return format_floats<T>(elements);
    });
  }
  std::vector<std::string> words;
  words.reserve(elements.size());
  std::size_t width = 0;
  for (const std::byte* p : elements) {
    words.push_back(format_scalar(p, dtype));
    width = std::max(width, words.back().size());
  }
  if (dtype == DType::bf16) return words;  // ml_dtypes does not align bfloat16 either
  if (dtype == DType::bool_) width = 5;
  for (std::string& w : words) w = padded_left(std::move(w), width);
  return words;
}

class Printer {
 public:
  Printer(const Shape& shape, bool summarised, const std::vector<std::string>& words)
      : shape_(shape), summarised_(summarised), next_(words.data()) {}

  // Prints dims `dim` … as "[…]". The first line begins after `indent` columns, by which
  // further lines are indented. `width`: the columns of a line, less the closing brackets that
  // follow.
  std::string print(std::size_t dim, int indent, int width) {
    if (dim == shape_.size()) return *next_++;
    const std::int64_t n = shape_[dim];
    const bool elided = is_elided(n, summarised_);
    const std::int64_t shown = elided ? 2 * kEdgeItems + 1 : n;
    const std::size_t below = shape_.size() - dim - 1;
    std::string out = "[";
    if (below == 0) {
      int column = indent;
      for (std::int64_t i = 0; i < shown; ++i) {
        const std::string word = elided && i == kEdgeItems ? "..." : *next_++;
        const int size = static_cast<int>(word.size());
        if (i > 0) {
          out += ' ';
          ++column;
        }
        if (column + size > width - 1 && column > indent) {
          while (out.back() == ' ') out.pop_back();
          out += '\n';
          out.append(static_cast<std::size_t>(indent), ' ');
          column = indent;
        }
        out += word;
        column += size;
      }
    } else {
      for (std::int64_t i = 0; i < shown; ++i) {
        if (i > 0) {
          out.append(below, '\n');
          out.append(static_cast<std::size_t>(indent), ' ');
        }
        out += elided && i == kEdgeItems ? "..." : print(dim + 1, indent + 1, width - 1);
      }
    }
    return out + "]";
  }

 private:
  const Shape& shape_;
  bool summarised_;
  const std::string* next_;
};

int columns(std::string_view utf8) {
  int n = 0;
  for (char c : utf8) n += (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
  return n;
}

}  // namespace

std::string format_array(const void* data, DType dtype, const Shape& shape,
                         std::string_view prefix) {
  if (dtype == DType::prng_key) {
    Shape words = shape;
    words.push_back(2);
    return "Array(" + to_string(shape) + ", dtype=key<fry>) overlaying:\n" +
           format_array(data, DType::u32, words, {});
  }
  const std::int64_t size = shape.num_elements();
  if (shape.empty()) return format_scalar(data, dtype);
  if (size == 0) return "[]";
  const bool summarised = size > kThreshold;
  const Visible visible(static_cast<const std::byte*>(data), itemsize(dtype), shape, summarised);
  const std::vector<std::string> words = format_elements(visible.elements(), dtype);
  return Printer(shape, summarised, words).print(0, columns(prefix) + 1, kLineWidth);
}

}  // namespace shmap::detail
