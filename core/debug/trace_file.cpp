#include "core/debug/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/debug/trace_json.h"
#include "core/device/span_label.h"

namespace shmap {

namespace {

constexpr int kProcessStep = 10000;
constexpr int kCompute = 0, kCommunication = 1, kScopes = 2;

// The id of the machine's boot. Times of processes with the same id have the same clock and can be
// compared.
std::string clock_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::vector<std::string> parts_of(const std::string& scope) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < scope.size();) {
    const std::size_t end = std::min(scope.find('/', begin), scope.size());
    parts.push_back(scope.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

class Writer {
 public:
  Writer(const TraceRecord& record, const std::function<void(const std::string&)>& add)
      : record_(record), add_(add) {}

  void write() {
    add_("{\"displayTimeUnit\":\"ns\",\"otherData\":" + about() + ",\"traceEvents\":[\n");
    names();
    for (const TimelineEvent& e : record_.events) spans_.push_back({&e, label_of(e.name)});
    for (const Told& told : spans_) span(told);
    arrows();
    exchanges();
    for (std::size_t d = 0; d < record_.devices.size(); ++d) scopes(static_cast<int>(d));
    memory();
    for (const HostSpan& s : record_.host.spans) host_span(s);
    add_("\n]}\n");
  }

 private:
  // An event and its label.
  struct Told {
    const TimelineEvent* event;
    SpanLabel label;
  };

  int host() const { return kProcessStep * record_.process; }
  int process_of(int device) const { return host() + 1 + device; }
  static int lane_of(const TimelineEvent& e) {
    return e.role == StreamRole::comm ? kCommunication : kCompute;
  }
  std::int64_t time(std::int64_t ns) const { return ns - record_.begin_ns; }

  void line(const std::string& event) {
    add_(first_ ? event : ",\n" + event);
    first_ = false;
  }

  std::string about() const {
    return fmt::format(R"({{"process":{},"processes":{},"begin_ns":{},"clock":{}}})",
                       record_.process, record_.processes, record_.begin_ns,
                       json_string(clock_name()));
  }

  void names() {
    line(trace_process_name(host(), record_.processes > 1
                                        ? "host of process " + std::to_string(record_.process)
                                        : "host"));
    int threads = 0;
    for (const HostSpan& s : record_.host.spans) threads = std::max(threads, s.thread + 1);
    for (int t = 0; t < threads; ++t)
      line(trace_thread_name(host(), t, "thread " + std::to_string(t)));
    for (std::size_t d = 0; d < record_.devices.size(); ++d) {
      const int process = process_of(static_cast<int>(d));
      line(trace_process_name(process, record_.devices[d].name));
      line(trace_thread_name(process, kCompute, "compute"));
      line(trace_thread_name(process, kCommunication, "communication"));
      line(trace_thread_name(process, kScopes, "scopes"));
    }
  }

  const SpanDetails& details(const SpanSubject& subject) {
    const auto [it, made] = details_.try_emplace(&subject);
    if (made) it->second = subject.details();
    return it->second;
  }

  // The arguments of a span: JSON without braces.
  std::string args(const Told& told) {
    const std::int64_t moved = told.event->bytes;
    if (told.label.subject == nullptr) return fmt::format(R"("bytes":{})", moved);
    const SpanDetails& d = details(*told.label.subject);
    std::string text =
        fmt::format(R"("bytes":{})", moved > 0 ? moved : static_cast<std::int64_t>(d.bytes));
    const auto add = [&](const char* name, const std::string& value) {
      if (!value.empty()) text += fmt::format(R"(,"{}":{})", name, json_string(value));
    };
    if (d.flops >= 0) text += fmt::format(R"(,"flops":{:.0f})", d.flops);
    add("operands", d.operands);
    add("results", d.results);
    add("parameters", d.parameters);
    add("scope", d.scope);
    add("source", d.source);
    if (!d.members.empty()) {
      text += ",\"members\":[";
      for (std::size_t i = 0; i < d.members.size(); ++i)
        text += (i == 0 ? "" : ",") + json_string(d.members[i]);
      text += "]";
    }
    return text;
  }

  void span(const Told& told) {
    const TimelineEvent& e = *told.event;
    line(trace_span(process_of(e.device), lane_of(e), e.name, time(e.begin_ns),
                    e.end_ns - e.begin_ns, args(told)));
  }

  // ---- arrows
  void arrow(const std::string& id, const char* name, int from, std::int64_t from_ns, int to,
             const TimelineEvent& arrives) {
    line(trace_flow(true, id, name, process_of(from), kCommunication, time(from_ns)));
    arrow_end(id, name, to, arrives);
  }
  // The arrow ends inside of the span of the receiving task.
  void arrow_end(const std::string& id, const char* name, int to, const TimelineEvent& arrives) {
    const std::int64_t at = std::max(arrives.end_ns - 1, arrives.begin_ns);
    line(trace_flow(false, id, name, process_of(to), kCommunication, time(at)));
  }

  using Turns = std::vector<const TimelineEvent*>;

  // Returns the sender's task of the call if an arrow can begin in it, or null if the receiver
  // copied before the sender's task began.
  static const TimelineEvent* start_of(const Turns& sent, const Turns& received, std::size_t turn) {
    const TimelineEvent& arrives = *received[turn];
    const TimelineEvent* best = nullptr;
    if (sent.size() == received.size()) {
      best = sent[turn];
    } else {
      for (const TimelineEvent* e : sent) {
        if (best == nullptr ||
            std::abs(e->begin_ns - arrives.begin_ns) < std::abs(best->begin_ns - arrives.begin_ns))
          best = e;
      }
    }
    return best != nullptr && best->begin_ns < arrives.end_ns ? best : nullptr;
  }

  // Each replay of a graph runs a call's tasks again, so that the n-th task on one device belongs
  // to the n-th task on the others. If the sender has no task in the call, because receivers copy
  // from its memory, the arrow begins in a span of no length; and ends in one if the receiver has
  // none, because the sender copies into its memory.
  void arrows() {
    std::map<std::pair<std::uint64_t, int>, Turns> calls;  // (collective, device)
    for (const Told& told : spans_)
      if (told.label.collective != 0)
        calls[{told.label.collective, told.event->device}].push_back(told.event);
    std::map<std::pair<std::uint64_t, int>, std::size_t> turns;
    std::int64_t id = 0;
    for (const Told& told : spans_) {
      if (told.label.collective == 0) continue;
      const TimelineEvent& e = *told.event;
      const std::size_t turn = turns[{told.label.collective, e.device}]++;
      const Turns& received = calls.at({told.label.collective, e.device});
      for (const auto& [from, to] : told.label.moves) {
        if (from == e.device && !calls.contains({told.label.collective, to})) {
          const std::int64_t at = std::max(e.end_ns - 1, e.begin_ns);
          line(trace_span(process_of(to), kCommunication, e.name + std::string(" (receives)"),
                          time(at), 0, R"("receives":true)"));
          arrow(fmt::format("{}.{}", record_.process, id++), e.name, from, e.begin_ns, to, e);
        }
        if (to != e.device) continue;
        const auto sent = calls.find({told.label.collective, from});
        const TimelineEvent* start =
            sent == calls.end() ? nullptr : start_of(sent->second, received, turn);
        std::int64_t begin_ns = start != nullptr ? start->begin_ns : e.begin_ns;
        if (start == nullptr) {
          line(trace_span(process_of(from), kCommunication, e.name + std::string(" (sends)"),
                          time(begin_ns), 0, R"("sends":true)"));
        }
        arrow(fmt::format("{}.{}", record_.process, id++), e.name, from, begin_ns, to, e);
      }
    }
  }

  // Draws arrows between processes: each process writes the begins of arrows for data that it sends
  // and the ends for data that it receives. Their ids are the same in all processes.
  void exchanges() {
    std::unordered_map<const char*, std::vector<const Told*>> tasks;
    for (const Told& told : spans_)
      if (!told.label.sends_to.empty() || !told.label.receives_from.empty())
        tasks[told.event->name].push_back(&told);
    for (const ExchangeNote& note : record_.host.exchanges) {
      const auto it = tasks.find(note.name);
      if (it == tasks.end()) continue;
      const auto during = [&](const Told* t) {
        return t->event->begin_ns <= note.at_ns && note.at_ns <= t->event->end_ns;
      };
      const auto found = std::find_if(it->second.begin(), it->second.end(), during);
      if (found == it->second.end()) continue;
      const TimelineEvent& e = *(*found)->event;
      const auto id = [&](int from, int to) {
        return fmt::format("x{:x}.{}.{}.{}-{}", note.space, note.number, note.round, from, to);
      };
      for (const int peer : (*found)->label.sends_to) {
        line(trace_flow(true, id(record_.process, peer), e.name, process_of(e.device),
                        kCommunication, time(e.begin_ns)));
      }
      for (const int peer : (*found)->label.receives_from)
        arrow_end(id(peer, record_.process), e.name, e.device, e);
    }
  }

  // ---- scopes
  // Writes a device's lane of scopes: a span for each run of successive tasks in a scope, and
  // nested spans for inner scopes.
  void scopes(int device) {
    struct Open {
      std::string name;
      std::int64_t begin_ns;
    };
    std::vector<Open> open;
    std::int64_t last_ns = 0;
    const auto close_to = [&](std::size_t depth) {
      while (open.size() > depth) {
        line(trace_span(process_of(device), kScopes, open.back().name, time(open.back().begin_ns),
                        last_ns - open.back().begin_ns, ""));
        open.pop_back();
      }
    };
    for (const Told& told : spans_) {
      const TimelineEvent& e = *told.event;
      if (e.device != device || e.role == StreamRole::comm) continue;
      const std::vector<std::string> parts = told.label.subject == nullptr
                                                 ? std::vector<std::string>()
                                                 : parts_of(details(*told.label.subject).scope);
      std::size_t same = 0;
      while (same < parts.size() && same < open.size() && open[same].name == parts[same]) ++same;
      close_to(same);
      for (std::size_t i = same; i < parts.size(); ++i) open.push_back({parts[i], e.begin_ns});
      last_ns = std::max(last_ns, e.end_ns);
    }
    close_to(0);
  }

  // ---- memory, and the host
  void memory() {
    std::unordered_map<int, std::int64_t> last;
    for (const MemorySample& s : record_.host.memory) {
      const auto [it, made] = last.try_emplace(s.space, s.bytes);
      if (!made && it->second == s.bytes) continue;
      it->second = s.bytes;
      for (std::size_t d = 0; d < record_.devices.size(); ++d) {
        if (record_.devices[d].space != s.space) continue;
        line(trace_counter(process_of(static_cast<int>(d)), "memory in use", time(s.at_ns),
                           s.bytes));
      }
    }
  }

  // A span that began before the trace is shown from the trace's begin.
  void host_span(const HostSpan& s) {
    const std::int64_t begin = std::max(s.begin_ns, record_.begin_ns);
    const bool is_scope = std::string_view(s.kind) == "scope";
    const std::string name =
        is_scope ? s.name : s.kind + (s.name.empty() ? std::string() : " " + s.name);
    line(trace_span(host(), s.thread, name, time(begin),
                    std::max(s.end_ns - begin, std::int64_t{0}),
                    fmt::format(R"("kind":"{}")", s.kind)));
  }

  const TraceRecord& record_;
  const std::function<void(const std::string&)>& add_;
  bool first_ = true;
  std::vector<Told> spans_;
  std::unordered_map<const SpanSubject*, SpanDetails> details_;
};

}  // namespace

void write_trace(const TraceRecord& record, const std::function<void(const std::string&)>& add) {
  Writer(record, add).write();
}

}  // namespace shmap
