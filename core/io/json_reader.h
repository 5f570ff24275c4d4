// Reads JSON from untrusted bytes, value by value: the caller asks for the value that must come
// next. It builds no tree and does not recurse, and unexpected values are errors. Strict: RFC 8259;
// numbers are integers of 0 or more that fit into 63 bits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap::io {

class JsonReader {
 public:
  // `name` begins messages: "<name>: bad header: …". `text` and `name` must outlive the reader.
  JsonReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  // Throws ValueError, as all functions below do.
  [[noreturn]] void fail(const std::string& what) const;
  void expect(char c, const char* wanted);  // after white space
  bool accept(char c);
  // The characters between the quotes, with their escapes; decode() resolves these.
  std::string_view string(const char* wanted);
  static bool has_escapes(std::string_view raw) { return raw.find('\\') != raw.npos; }
  std::string decode(std::string_view raw) const;
  // The next string with its escapes resolved.
  std::string text_of(const char* wanted) { return decode(string(wanted)); }
  std::int64_t integer(const char* wanted);
  void expect_end();

  // Moves to the next entry of an object or list whose opening bracket has been read. False at the
  // end, whose bracket is then read. `first` must be true at first, and becomes false.
  bool next(bool& first, char end);

  std::size_t position() const { return at_; }
  void seek(std::size_t at) { at_ = at; }

 private:
  void skip_space();
  std::string here() const;

  std::string_view text_, name_;
  std::size_t at_ = 0;
};

// True if the bytes are valid UTF-8, without overlong forms and surrogates.
bool is_utf8(std::string_view text);
// The text as a JSON string, with quotes and escapes.
std::string json_string(std::string_view text);
// Bytes of a file for use in a message: short, on one line, printable, in quotes.
std::string quoted_bytes(std::string_view bytes);

}  // namespace shmap::io
