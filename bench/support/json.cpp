#include "bench/support/json.h"

#include <cmath>
#include <cstdio>

namespace shmap::bench {
namespace {

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

void Json::separate() {
  if (!body_.empty()) body_ += ", ";
}

Json& Json::set(std::string_view key, const Json& value) {
  separate();
  body_ += quoted(key) + ": " + value.text();
  return *this;
}

Json& Json::set(std::string_view key, std::string_view value) {
  separate();
  body_ += quoted(key) + ": " + quoted(value);
  return *this;
}

Json& Json::set(std::string_view key, double value) {
  separate();
  char number[32] = "null";
  if (std::isfinite(value)) std::snprintf(number, sizeof number, "%.9g", value);
  body_ += quoted(key) + ": " + number;
  return *this;
}

Json& Json::push(const Json& value) {
  separate();
  body_ += value.text();
  return *this;
}

Json& Json::push(std::string_view value) {
  separate();
  body_ += quoted(value);
  return *this;
}

Json& Json::push(double value) {
  separate();
  char number[32] = "null";
  if (std::isfinite(value)) std::snprintf(number, sizeof number, "%.17g", value);
  body_ += number;
  return *this;
}

}  // namespace shmap::bench
