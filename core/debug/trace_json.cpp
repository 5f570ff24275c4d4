#include "core/debug/trace_json.h"

#include <fmt/format.h>

namespace shmap {

namespace {

// Returns the length of the UTF-8 character at the begin of the text, 1 to 4, or 0 if there is
// none: an invalid first byte, a truncated or overlong sequence, a surrogate, or a code point
// beyond U+10FFFF.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xc2 && first <= 0xdf   ? 2
                           : first >= 0xe0 && first <= 0xef ? 3
                           : first >= 0xf0 && first <= 0xf4 ? 4
                                                            : 0;
  if (size == 0 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
    return 0;
  return size;
}

double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const unsigned char first = static_cast<unsigned char>(text.front());
    const std::size_t size = character_bytes(text);
    if (size == 0) {
      out += fmt::format("\\\\x{:02x}", first);
    } else if (first < 0x20 || first == 0x7f) {
      out += fmt::format("\\u{:04x}", first);
    } else {
      if (first == '"' || first == '\\') out += '\\';
      out += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out += '"';
}

std::string trace_process_name(int process, std::string_view name) {
  return fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", process,
                     json_string(name));
}

std::string trace_thread_name(int process, int thread, std::string_view name) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                     process, thread, json_string(name));
}

std::string trace_span(int process, int thread, std::string_view name, std::int64_t begin_ns,
                       std::int64_t duration_ns, std::string_view args) {
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":{},"ts":{:.3f},"dur":{:.3f}{}}})",
                     process, thread, json_string(name), microseconds(begin_ns),
                     microseconds(duration_ns),
                     args.empty() ? std::string() : fmt::format(R"(,"args":{{{}}})", args));
}

std::string trace_flow(bool begins, std::string_view id, std::string_view name, int process,
                       int thread, std::int64_t at_ns) {
  return fmt::format(
      R"({{"ph":"{}","cat":"collective","id":{},"pid":{},"tid":{},"name":{},"ts":{:.3f}{}}})",
      begins ? "s" : "f", json_string(id), process, thread, json_string(name), microseconds(at_ns),
      begins ? "" : R"(,"bp":"e")");
}

std::string trace_counter(int process, std::string_view name, std::int64_t at_ns,
                          std::int64_t bytes) {
  return fmt::format(R"({{"ph":"C","pid":{},"name":{},"ts":{:.3f},"args":{{"bytes":{}}}}})",
                     process, json_string(name), microseconds(at_ns), bytes);
}

}  // namespace shmap
