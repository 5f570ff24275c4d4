#include "shmap/profiler.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/file_descriptor.h"
#include "core/base/warning.h"
#include "core/debug/timeline_text.h"
#include "core/debug/trace_json.h"
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
  } catch (const std::exception& e) {
    warn(e.what());  // a destructor cannot throw; close() does
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
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool written = true;
  std::string why;
  const auto flush = [&] {
    written = written && std::fwrite(text.data(), 1, text.size(), s.file) == text.size();
    if (!written && why.empty()) why = errno_text(errno);
    text.clear();
  };
  const auto add = [&](const std::string& event) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    text += ",\n" + event;
    if (text.size() > kPiece) flush();
  };
  text += trace_process_name(0, "host");
  int devices = -1;
  for (const TimelineEvent& e : s.events) devices = std::max(devices, e.device);
  for (int d = 0; d <= devices; ++d) {
    add(trace_process_name(d + 1,
                           runtime().local_devices()[static_cast<std::size_t>(d)].device.str()));
    add(trace_thread_name(d + 1, 0, "compute"));
    add(trace_thread_name(d + 1, 1, "communication"));
  }
  for (const TimelineEvent& e : s.events) {
    add(trace_span(e.device + 1, e.role == StreamRole::comm ? 1 : 0, e.name,
                   e.begin_ns - s.begin_ns, e.end_ns - e.begin_ns, e.bytes));
  }
  for (const Scope& scope : s.scopes)
    add(trace_span(0, 0, scope.name, scope.begin_ns - s.begin_ns, scope.end_ns - scope.begin_ns));
  text += "\n]}\n";
  flush();
  if (std::fclose(std::exchange(s.file, nullptr)) != 0 && written) {
    written = false;
    why = errno_text(errno);
  }
  if (s.recorder.lost() > 0) {
    warn("profiler::Trace: " + std::to_string(s.recorder.lost()) +
         " events are missing from the file \"" + s.path +
         "\", since there was no memory for them");
  }
  if (!written) {
    throw Error("profiler::Trace: the file \"" + s.path + "\" could not be written in full: " +
                why + ": make room there, or give the trace another path");
  }
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
