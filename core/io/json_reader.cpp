#include "core/io/json_reader.h"

#include "shmap/error.h"

namespace shmap::io {

namespace {

constexpr char kHex[] = "0123456789abcdef";

void append_utf8(std::string& out, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 63));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 63));
    put(0x80 | (c >> 6 & 63));
  }
  put(0x80 | (c & 63));
}

}  // namespace

std::string quoted_bytes(std::string_view bytes) {
  constexpr std::size_t kShown = 60;
  std::string s = "'";
  for (char c : bytes.substr(0, kShown)) {
    const auto b = static_cast<unsigned char>(c);
    if (b >= 0x20 && b < 0x7f) {
      s += c;
    } else {
      s += "\\x";
      s += kHex[b >> 4];
      s += kHex[b & 15];
    }
  }
  return s + (bytes.size() > kShown ? "…'" : "'");
}

std::string json_string(std::string_view text) {
  std::string s = "\"";
  for (char c : text) {
    const auto b = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      s += '\\';
      s += c;
    } else if (b < 0x20) {
      s += "\\u00";
      s += kHex[b >> 4];
      s += kHex[b & 15];
    } else {
      s += c;
    }
  }
  return s + '"';
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) {
      return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u;
    };
    const std::uint32_t b = byte(0);
    if (b < 0x80) {
      ++i;
      continue;
    }
    const std::size_t more = b >= 0xc2 && b < 0xe0   ? 1
                             : b >= 0xe0 && b < 0xf0 ? 2
                             : b >= 0xf0 && b < 0xf5 ? 3
                                                     : 0;
    if (more == 0) return false;
    std::uint32_t c = b & (0x3fu >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      if ((byte(k) & 0xc0) != 0x80) return false;
      c = c << 6 | (byte(k) & 63);
    }
    if ((more == 2 && c < 0x800) || (more == 3 && (c < 0x10000 || c > 0x10ffff)) ||
        (c >= 0xd800 && c < 0xe000))
      return false;
    i += more + 1;
  }
  return true;
}

void JsonReader::fail(const std::string& what) const {
  throw ValueError(std::string(name_) + ": bad header: " + what);
}

std::string JsonReader::here() const {
  return "character " + std::to_string(at_) +
         (at_ < text_.size() ? " " + quoted_bytes(text_.substr(at_)) : std::string(", its end"));
}

void JsonReader::skip_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
    ++at_;
}

bool JsonReader::accept(char c) {
  skip_space();
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c, const char* wanted) {
  if (!accept(c)) fail(std::string("wanted ") + wanted + " at " + here());
}

bool JsonReader::next(bool& first, char end) {
  if (accept(end)) {
    return false;  // at the end of an empty list or object, or after the last entry
  }
  if (first) {
    first = false;
    return true;
  }
  expect(',', end == '}' ? "',' or '}'" : "',' or ']'");
  skip_space();
  if (at_ < text_.size() && text_[at_] == end) fail("a comma before an end at " + here());
  return true;
}

std::string_view JsonReader::string(const char* wanted) {
  expect('"', wanted);
  const std::size_t first = at_;
  for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    if (static_cast<unsigned char>(text_[at_]) < 0x20) fail("a control character at " + here());
    if (text_[at_] == '\\' && ++at_ == text_.size()) break;
  }
  if (at_ == text_.size()) fail("a string has no end");
  return text_.substr(first, at_++ - first);
}

std::string JsonReader::decode(std::string_view raw) const {
  std::string out;
  out.reserve(raw.size());
  const auto unit = [&](std::size_t at) {
    std::uint32_t c = 0;
    if (at + 4 > raw.size()) fail("an escape without four digits in " + quoted_bytes(raw));
    for (std::size_t k = at; k < at + 4; ++k) {
      const char d = raw[k];
      const int value = d >= '0' && d <= '9'   ? d - '0'
                        : d >= 'a' && d <= 'f' ? d - 'a' + 10
                        : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                               : -1;
      if (value < 0) fail("an escape without four digits in " + quoted_bytes(raw));
      c = c * 16 + static_cast<std::uint32_t>(value);
    }
    return c;
  };
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      out += raw[i];
      continue;
    }
    const char e = raw[++i];  // exists: string() has checked it
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const std::size_t k = kNames.find(e); k != kNames.npos) {
      out += kMeanings[k];
      continue;
    }
    if (e != 'u') fail("an unknown escape in " + quoted_bytes(raw));
    std::uint32_t c = unit(i + 1);
    i += 4;
    if (c >= 0xd800 && c < 0xdc00) {
      const bool follows = i + 2 < raw.size() && raw[i + 1] == '\\' && raw[i + 2] == 'u';
      const std::uint32_t low = follows ? unit(i + 3) : 0;
      if (low < 0xdc00 || low >= 0xe000) fail("half a surrogate pair in " + quoted_bytes(raw));
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
      i += 6;
    } else if (c >= 0xdc00 && c < 0xe000) {
      fail("half a surrogate pair in " + quoted_bytes(raw));
    }
    append_utf8(out, c);
  }
  return out;
}

std::int64_t JsonReader::integer(const char* wanted) {
  skip_space();
  const std::size_t first = at_;
  std::int64_t value = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
    if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
        __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value))
      fail(std::string(wanted) + " is too large at " + std::to_string(first));
  }
  const bool more =
      at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E');
  if (at_ == first || more || (text_[first] == '0' && at_ > first + 1)) {
    at_ = first;
    fail(std::string("wanted ") + wanted + ", an integer of 0 or more, at " + here());
  }
  return value;
}

void JsonReader::expect_end() {
  skip_space();
  if (at_ != text_.size()) fail("there is more text after the object, at " + here());
}

}  // namespace shmap::io
