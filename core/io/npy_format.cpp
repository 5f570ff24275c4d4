#include "core/io/npy_format.h"

#include <algorithm>
#include <cstring>

#include "core/base/dtype_table.h"
#include "core/io/json_reader.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {

// The type string of each dtype: byte order, kind, bytes. nullptr: the format lacks the dtype.
#define SHMAP_CODE(name, type, jaxpr, numpy, npy, ...) npy,
constexpr const char* kCodes[kDTypeCount] = {SHMAP_DTYPES(SHMAP_CODE)};
#undef SHMAP_CODE

constexpr std::string_view kMagic("\x93NUMPY", 6);

// Parses the header's text, a Python dict of three known keys, strictly.
class HeaderText {
 public:
  HeaderText(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool have_descr = false, have_order = false, have_shape = false;
    skip_space();
    expect('{', "a dict of 'descr', 'fortran_order' and 'shape'");
    skip_space();
    while (!accept('}')) {
      const std::string_view key = string("a key in quotes");
      skip_space();
      expect(':', "':' after a key");
      skip_space();
      if (key == "descr") {
        claim(have_descr, key);
        descr(header);
      } else if (key == "fortran_order") {
        claim(have_order, key);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        claim(have_shape, key);
        header.shape = tuple();
      } else {
        fail("key " + quoted_bytes(key) +
             " is unknown: 'descr', 'fortran_order' and 'shape' make a header");
      }
      skip_space();
      if (accept('}')) break;
      expect(',', "',' or '}' after a value");
      skip_space();
    }
    skip_space();
    if (at_ != text_.size()) fail("there is more text after the dict, at " + here());
    const char* missing = !have_descr   ? "descr"
                          : !have_order ? "fortran_order"
                          : !have_shape ? "shape"
                                        : nullptr;
    if (missing != nullptr) fail(std::string("key '") + missing + "' is missing");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ValueError(std::string(name_) + ": bad header: " + what);
  }
  std::string here() const {
    return "character " + std::to_string(at_) +
           (at_ < text_.size() ? " " + quoted_bytes(text_.substr(at_)) : std::string(", its end"));
  }
  void claim(bool& have, std::string_view key) const {
    if (have) fail("key " + quoted_bytes(key) + " is given twice");
    have = true;
  }
  bool accept(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* wanted) {
    if (!accept(c)) fail(std::string("wanted ") + wanted + " at " + here());
  }
  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n\f", text_[at_]) && text_[at_] != '\0') ++at_;
  }
  bool accept_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string_view string(const char* wanted) {
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail(std::string("wanted ") + wanted + " at " + here());
    const std::size_t first = ++at_;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20 || c >= 0x7f || c == '\\')
        fail("a string holds a byte that no name has: " + here());
    }
    if (at_ == text_.size()) fail("a string has no end");
    return text_.substr(first, at_++ - first);
  }

  bool boolean() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail("wanted True or False for 'fortran_order' at " + here());
  }

  std::int64_t extent() {
    if (at_ < text_.size() && text_[at_] == '-')
      fail("an extent of 'shape' is negative, at " + here());
    const std::size_t first = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value)) {
        at_ = first;
        fail("an extent of 'shape' passes 2^63 - 1, at " + here());
      }
    }
    if (at_ == first) fail("wanted an extent of 'shape' at " + here());
    if (text_[first] == '0' && at_ != first + 1) fail("an extent of 'shape' starts with 0");
    accept('L');  // a long of Python 2
    return value;
  }

  Shape tuple() {
    expect('(', "a tuple for 'shape'");
    Shape shape;
    skip_space();
    while (!accept(')')) {
      const std::int64_t e = extent();
      if (shape.rank() == kMaxRank)
        fail("'shape' has more than " + std::to_string(kMaxRank) + " dims, the limit");
      shape.push_back(e);
      skip_space();
      if (accept(',')) {
        skip_space();
        continue;
      }
      expect(')', "',' or ')' in 'shape'");
      if (shape.rank() == 1) fail("'shape' is a number in brackets, no tuple: wanted (n,)");
      break;
    }
    return shape;
  }

  void descr(NpyHeader& header) {
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      fail("a structured dtype (" + quoted_bytes(text_.substr(at_)) +
           "): save each field as an array of its own");
    }
    const std::string_view code = string("a dtype code for 'descr'");
    std::string_view kind = code;
    if (kind == "bfloat16") {
      header.dtype = DType::bf16;
      return;
    }
    char order = '|';
    if (!kind.empty() && std::strchr("<>|=", kind[0]) && kind[0] != '\0') {
      order = kind[0];
      kind.remove_prefix(1);
    }
    if (kind == "?") kind = "b1";
    for (int i = 0; i < kDTypeCount; ++i) {
      if (kCodes[i] == nullptr || kind != kCodes[i] + 1) continue;
      header.dtype = static_cast<DType>(i);
      header.big_endian = order == '>' && itemsize(header.dtype) > 1;
      return;
    }
    const char first = kind.empty() ? '\0' : kind[0];
    std::string why = "is not a dtype";
    if (first == 'O') {
      fail("dtype " + quoted_bytes(code) +
           " is of pickled Python objects, which are never unpickled, as that runs code from the "
           "file: save numbers");
    } else if (first == 'c') {
      why = "is complex: save the real and imaginary parts as two arrays";
    } else if (first == 'S' || first == 'U' || first == 'a') {
      why = "is of strings";
    } else if (first == 'M' || first == 'm') {
      why = "is of dates or times: save them as i8";
    } else if (first == 'V') {
      why = "is of raw bytes (only V2, bfloat16, is read)";
    } else if (first == 'f') {
      why = "is a float wider than 64 bits: save it as f8";
    }
    fail("dtype " + quoted_bytes(code) + " " + why +
         "; wanted one of b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 V2 with '<', '>', '=' or '|' before");
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
};

const char* npy_code(DType dtype) {
  if (const char* code = kCodes[static_cast<int>(dtype)]) return code;
  throw TypeError(
      "save_npy: the .npy format has no dtype for random keys (key<fry>): save numbers instead");
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> prefix, std::int64_t file_size,
                           std::string_view name) {
  const std::string_view bytes(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  const auto fail = [&](const std::string& what) {
    throw ValueError(std::string(name) + ": " + what);
  };
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (file_size < size) fail("the file is shorter than its magic bytes and the size of its header");
  if (bytes.substr(0, kMagic.size()) != kMagic.substr(0, bytes.size()) || bytes.empty()) {
    fail("no .npy file: it starts with " + quoted_bytes(bytes.substr(0, kMagic.size())) +
         " instead of '\\x93NUMPY'");
  }
  // Everything up to `end` must be in the file, and in `prefix`.
  const auto need = [&](std::int64_t end, const char* what) {
    if (end > file_size) {
      fail(std::string("truncated: ") + what + " ends at byte " + std::to_string(end) +
           ", and the file has " + std::to_string(file_size));
    }
    if (end > size) {
      fail(std::string("the first ") + std::to_string(size) + " bytes were given, and " + what +
           " ends at byte " + std::to_string(end));
    }
  };
  need(8, "the version");
  const auto byte = [&](std::size_t i) {
    return std::int64_t{static_cast<unsigned char>(bytes[i])};
  };
  const std::int64_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    fail("version " + std::to_string(major) + "." + std::to_string(minor) +
         " of the format is unknown: wanted 1.0, 2.0 or 3.0");
  }
  const std::int64_t text_at = major == 1 ? 10 : 12;
  need(text_at, "the header's length");
  std::int64_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (text_at + length > kNpyMaxPrefix) {
    fail("the header is said to be " + std::to_string(length) + " bytes long: the limit is " +
         std::to_string(kNpyMaxPrefix - text_at));
  }
  need(text_at + length, "the header");

  NpyHeader header =
      HeaderText(bytes.substr(static_cast<std::size_t>(text_at), static_cast<std::size_t>(length)),
                 name)
          .parse();
  header.data_offset = text_at + length;
  std::int64_t data = 0;
  try {
    data = checked_bytes(header.shape, itemsize(header.dtype));
  } catch (const ValueError& e) {
    fail(std::string("bad header: ") + e.what());
  }
  const std::int64_t present = file_size - header.data_offset;
  if (data > present) {
    fail("truncated: " + to_string(header.dtype) + " of shape " + to_string(header.shape) +
         " takes " + std::to_string(data) + " bytes, and " + std::to_string(present) +
         " follow the header");
  }
  if (data < present) {
    fail(std::to_string(present - data) + " bytes follow the " + std::to_string(data) + " of the " +
         to_string(header.dtype) + " of shape " + to_string(header.shape) +
         ": the header is wrong, or several arrays were written to one file (save one a file)");
  }
  return header;
}

std::string make_npy_header(DType dtype, const Shape& shape, bool fortran_order) {
  std::string text = std::string("{'descr': '") + npy_code(dtype) +
                     "', 'fortran_order': " + (fortran_order ? "True" : "False") +
                     ", 'shape': " + to_string(shape) + ", }";
  if (!shape.empty()) {
    // Padding, as NumPy writes it, so that the first extent can grow to 21 digits in place.
    const std::size_t digits = std::to_string(fortran_order ? shape.back() : shape.front()).size();
    text.append(21 - std::min<std::size_t>(digits, 21), ' ');
  }
  const std::size_t unpadded = 10 + text.size() + 1;
  text.append(64 - unpadded % 64, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace shmap::io
