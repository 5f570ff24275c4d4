// Lines of a trace file in Chrome's format (JSON), independent of the locale, for names of any
// bytes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap {

// The text as a JSON string with quotes. Bytes that are not UTF-8 are written as the text \xNN.
std::string json_string(std::string_view text);

// The name of a process or a thread: a metadata event.
std::string trace_process_name(int process, std::string_view name);
std::string trace_thread_name(int process, int thread, std::string_view name);

// A complete event; times in ns, written as microseconds. args: JSON without braces,
// R"("bytes":64)"; may be empty.
std::string trace_span(int process, int thread, std::string_view name, std::int64_t begin_ns,
                       std::int64_t duration_ns, std::string_view args = "");

// One end of an arrow, in the span that contains that time; both ends have the same id and name.
std::string trace_flow(bool begins, std::string_view id, std::string_view name, int process,
                       int thread, std::int64_t at_ns);

// A counter of bytes, whose value holds from that time on.
std::string trace_counter(int process, std::string_view name, std::int64_t at_ns,
                          std::int64_t bytes);

}  // namespace shmap
