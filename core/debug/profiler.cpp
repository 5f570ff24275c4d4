#include "shmap/profiler.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <vector>

#include "core/debug/timeline_text.h"
#include "core/device/runtime.h"
#include "core/device/timeline.h"
#include "shmap/error.h"

namespace shmap {

namespace {

struct Scope {
  std::string name;
  std::int64_t begin_ns, end_ns;
};

// Scopes are recorded only while a trace runs.
std::mutex scopes_mutex;
std::vector<Scope>* scopes = nullptr;

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out;
}

using Spans = std::vector<std::pair<std::int64_t, std::int64_t>>;

// Sorted and merged.
Spans merged(Spans spans) {
  std::sort(spans.begin(), spans.end());
  Spans out;
  for (const auto& s : spans) {
    if (!out.empty() && s.first <= out.back().second) {
      out.back().second = std::max(out.back().second, s.second);
    } else {
      out.push_back(s);
    }
  }
  return out;
}

std::int64_t overlap_of(std::int64_t begin, std::int64_t end, const Spans& spans) {
  std::int64_t total = 0;
  for (const auto& [b, e] : spans)
    total += std::max<std::int64_t>(0, std::min(end, e) - std::max(begin, b));
  return total;
}

}  // namespace

named_scope::named_scope(std::string_view name) : name_(name), begin_ns_(timeline_now()) {}

named_scope::~named_scope() {
  std::lock_guard lock(scopes_mutex);
  if (!scopes) return;
  try {
    scopes->push_back({name_, begin_ns_, timeline_now()});
  } catch (const std::bad_alloc&) {
    // A span less in a trace is all that is lost.
  }
}

namespace profiler {

struct Trace::State {
  std::string path;
  std::FILE* file = nullptr;
  TimelineRecorder recorder;
  std::vector<TimelineEvent> events;
  std::vector<Scope> scopes;
  std::int64_t begin_ns = 0;
  bool closed = false;
};

Trace::Trace(std::string_view path) : state_(std::make_unique<State>()) {
  state_->path = path;
  if (timeline_sink() != nullptr) {
    throw Error("profiler::Trace(\"" + state_->path +
                "\"): a trace is running already: close it first");
  }
  state_->file = std::fopen(state_->path.c_str(), "w");
  if (!state_->file)
    throw Error("profiler::Trace: the file \"" + state_->path + "\" cannot be opened for writing");
  runtime();
  state_->begin_ns = timeline_now();
  {
    std::lock_guard lock(scopes_mutex);
    shmap::scopes = &state_->scopes;
  }
  set_timeline_sink(&state_->recorder);
}

Trace::~Trace() {
  try {
    close();
  } catch (const std::exception&) {
    // close() is what reports; a destructor cannot.
  }
}

void Trace::close() {
  State& s = *state_;
  if (s.closed) return;
  s.closed = true;
  {
    std::lock_guard lock(scopes_mutex);
    shmap::scopes = nullptr;
  }
  std::exception_ptr failed;
  try {
    runtime().backend().synchronize();
  } catch (...) {
    failed = std::current_exception();
  }
  set_timeline_sink(nullptr);
  s.events = s.recorder.take();
  std::sort(s.events.begin(), s.events.end(),
            [](const TimelineEvent& a, const TimelineEvent& b) { return a.begin_ns < b.begin_ns; });
  const auto us = [&](std::int64_t ns) { return static_cast<double>(ns - s.begin_ns) / 1000; };
  std::FILE* f = s.file;
  std::fprintf(f, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  std::fprintf(f,
               "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"host\"}}");
  int devices = -1;
  for (const TimelineEvent& e : s.events) devices = std::max(devices, e.device);
  for (int d = 0; d <= devices; ++d) {
    const std::string name = runtime().local_devices()[static_cast<std::size_t>(d)].device.str();
    std::fprintf(
        f, ",\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}",
        d + 1, escaped(name).c_str());
    std::fprintf(f,
                 ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"thread_name\",\"args\":{"
                 "\"name\":\"compute\"}}",
                 d + 1);
    std::fprintf(f,
                 ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"name\":\"thread_name\",\"args\":{"
                 "\"name\":\"communication\"}}",
                 d + 1);
  }
  for (const TimelineEvent& e : s.events) {
    std::fprintf(f,
                 ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,"
                 "\"args\":{\"bytes\":%lld}}",
                 e.device + 1, e.role == StreamRole::comm ? 1 : 0, escaped(e.name).c_str(),
                 us(e.begin_ns), static_cast<double>(e.end_ns - e.begin_ns) / 1000,
                 static_cast<long long>(e.bytes));
  }
  for (const Scope& scope : s.scopes) {
    std::fprintf(f,
                 ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":0,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f}",
                 escaped(scope.name).c_str(), us(scope.begin_ns),
                 static_cast<double>(scope.end_ns - scope.begin_ns) / 1000);
  }
  std::fprintf(f, "\n]}\n");
  const bool bad = std::ferror(f) != 0;
  const bool unwritten = std::fclose(f) != 0;
  s.file = nullptr;
  if (bad || unwritten)
    throw Error("profiler::Trace: the file \"" + s.path + "\" could not be written in full");
  if (failed) std::rethrow_exception(failed);
}

std::string Trace::timeline(int columns) const { return draw_timeline(state_->events, columns); }

Overlap Trace::overlap() const {
  Overlap out;
  Spans compute;
  for (const TimelineEvent& e : state_->events) {
    if (e.role == StreamRole::compute) {
      compute.emplace_back(e.begin_ns, e.end_ns);
      out.compute_us += static_cast<double>(e.end_ns - e.begin_ns) / 1000;
    }
  }
  compute = merged(std::move(compute));
  for (const TimelineEvent& e : state_->events) {
    if (e.role != StreamRole::comm) continue;
    out.communication_us += static_cast<double>(e.end_ns - e.begin_ns) / 1000;
    out.overlapped_us += static_cast<double>(overlap_of(e.begin_ns, e.end_ns, compute)) / 1000;
  }
  return out;
}

}  // namespace profiler
}  // namespace shmap
