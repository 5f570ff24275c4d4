// JSON from bytes that nobody vouches for, pulled value by value by whoever knows what has to come:
// no tree is built, nothing recurses, and what is not taken is an error. Strict: RFC 8259, numbers
// are integers of 0 or more that fit 63 bits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap::io {

class JsonReader {
 public:
  // `name` starts the messages: "<name>: bad header: …". Both have to outlive the reader.
  JsonReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  // ValueError, here and below.
  [[noreturn]] void fail(const std::string& what) const;
  void expect(char c, const char* wanted);  // after white space
  bool accept(char c);
  // The characters between the quotes, as they stand; decode() gives what they mean.
  std::string_view string(const char* wanted);
  static bool has_escapes(std::string_view raw) { return raw.find('\\') != raw.npos; }
  std::string decode(std::string_view raw) const;
  // What they mean, whatever they are.
  std::string text_of(const char* wanted) { return decode(string(wanted)); }
  std::int64_t integer(const char* wanted);
  void expect_end();

  // The next entry of an object or list, whose opening bracket is taken: false at its end, which is
  // taken too. `first` is true at first, and becomes false.
  bool next(bool& first, char end);

  std::size_t position() const { return at_; }
  void seek(std::size_t at) { at_ = at; }

 private:
  void skip_space();
  std::string here() const;

  std::string_view text_, name_;
  std::size_t at_ = 0;
};

// Whether these bytes are UTF-8: no overlong forms, no surrogates.
bool is_utf8(std::string_view text);
// In quotes, escaped where JSON wants it.
std::string json_string(std::string_view text);
// Bytes of a file for a message: short, on one line, printable, in quotes.
std::string quoted_bytes(std::string_view bytes);

}  // namespace shmap::io
