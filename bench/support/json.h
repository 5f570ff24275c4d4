// A JSON value that is only written; the benchmarks print and save it.
#pragma once
#include <string>
#include <string_view>

namespace shmap::bench {

class Json {
 public:
  static Json object() { return Json('{', '}'); }
  static Json list() { return Json('[', ']'); }

  // Members keep the order in which they are set. NaN and infinities become null.
  Json& set(std::string_view key, const Json& value);
  Json& set(std::string_view key, std::string_view value);
  Json& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  Json& set(std::string_view key, double value);
  Json& push(const Json& value);
  Json& push(std::string_view value);
  Json& push(double value);

  std::string text() const { return open_ + body_ + close_; }

 private:
  Json(char open, char close) : open_(1, open), close_(1, close) {}
  void separate();

  std::string open_, body_, close_;
};

}  // namespace shmap::bench
