#include "shmap/profiler.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/file_descriptor.h"
#include "core/base/scope_names.h"
#include "core/base/warning.h"
#include "core/debug/timeline_text.h"
#include "core/debug/trace_file.h"
#include "core/device/fork_guard.h"
#include "core/device/host_log.h"
#include "core/device/runtime.h"
#include "core/device/span_label.h"
#include "core/device/timeline.h"
#include "shmap/error.h"

namespace shmap {

namespace {

using Spans = std::vector<std::pair<std::int64_t, std::int64_t>>;

// Sorts the spans and merges those that overlap.
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

// begin_ns_ is 0 where no trace is recording.
named_scope::named_scope(std::string_view name)
    : name_(name), begin_ns_(host_log_runs() ? timeline_now() : 0) {
  enter_scope(name_);
}

named_scope::~named_scope() {
  leave_scope();
  if (host_log_runs()) log_host_span("scope", std::move(name_), begin_ns_, timeline_now());
}

namespace profiler {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

struct Trace::State {
  std::string path;
  std::unique_ptr<std::FILE, CloseFile> file;
  std::optional<LabelsInUse> labels;  // until the trace is written
  TimelineRecorder recorder;
  TraceRecord record;
  bool closed = false;
};

Trace::Trace(std::string_view path) : state_(std::make_unique<State>()) {
  state_->path = path;
  if (timeline_sink() != nullptr) {
    throw Error("profiler::Trace(\"" + state_->path +
                "\"): a trace is running already: close it first");
  }
  state_->file.reset(std::fopen(state_->path.c_str(), "w"));
  if (!state_->file)
    throw Error("profiler::Trace: the file \"" + state_->path + "\" cannot be opened for writing");
  TraceRecord& record = state_->record;
  record.process = runtime().process_index();
  record.processes = runtime().process_count();
  for (const LocalDevice& d : runtime().local_devices())
    record.devices.push_back({d.device.str(), d.space->id()});
  forget_labels();
  state_->labels.emplace();
  record.begin_ns = timeline_now();
  start_host_log();
  for (const LocalDevice& d : runtime().local_devices())
    log_memory(d.space->id(), d.space->bytes_in_use());
  set_timeline_sink(&state_->recorder);
}

Trace::~Trace() {
  try {
    close();
  } catch (const std::exception& e) {
    warn(e.what());  // a destructor cannot throw; close() does
  } catch (...) {
    warn("profiler::Trace(\"" + state_->path +
         "\"): a task failed with an exception that is not derived from std::exception");
  }
}

void Trace::close() {
  State& s = *state_;
  if (s.closed) return;
  s.closed = true;
  if (forked()) {  // the file is the parent's, which writes it
    set_timeline_sink(nullptr);
    return;
  }
  const std::exception_ptr failed = stop_recording(runtime().backend());
  s.record.host = stop_host_log();
  s.record.events = s.recorder.take();
  std::sort(s.record.events.begin(), s.record.events.end(),
            [](const TimelineEvent& a, const TimelineEvent& b) { return a.begin_ns < b.begin_ns; });
  std::string text;
  bool written = true;
  std::string why;
  const auto flush = [&] {
    written = written && std::fwrite(text.data(), 1, text.size(), s.file.get()) == text.size();
    if (!written && why.empty()) why = errno_text(errno);
    text.clear();
  };
  write_trace(s.record, [&](const std::string& line) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    text += line;
    if (text.size() > kPiece) flush();
  });
  flush();
  s.labels.reset();
  if (std::fclose(s.file.release()) != 0 && written) {
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

std::string Trace::timeline(int columns) const {
  return draw_timeline(state_->record.events, columns);
}

Overlap Trace::overlap() const {
  Overlap out;
  Spans compute;
  for (const TimelineEvent& e : state_->record.events) {
    if (e.role == StreamRole::compute) {
      compute.emplace_back(e.begin_ns, e.end_ns);
      out.compute_us += static_cast<double>(e.end_ns - e.begin_ns) / 1000;
    }
  }
  compute = merged(std::move(compute));
  for (const TimelineEvent& e : state_->record.events) {
    if (e.role != StreamRole::comm) continue;
    out.communication_us += static_cast<double>(e.end_ns - e.begin_ns) / 1000;
    out.overlapped_us += static_cast<double>(overlap_of(e.begin_ns, e.end_ns, compute)) / 1000;
  }
  return out;
}

}  // namespace profiler
}  // namespace shmap
