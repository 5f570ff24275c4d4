// A segment as text, for people and for golden texts of plans.
#include <algorithm>
#include <map>

#include "core/base/counted.h"
#include "core/base/format_float.h"
#include "core/device/backend.h"
#include "core/ir/node.h"
#include "core/runtime/segment.h"

namespace shmap {

namespace {

// Ascending numbers, with runs drawn together: "0-3, 7".
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (i ? ", " : "") + std::to_string(numbers[i]);
    if (end > i + 1) text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

void add_once(std::vector<int>& sorted, int number) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), number);
  if (at == sorted.end() || *at != number) sorted.insert(at, number);
}

// "%2", "%2 and %3", "%2, %3 and %4"
std::string value_names(const std::vector<int>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += (i == 0 ? "%" : i + 1 == values.size() ? " and %" : ", %") + std::to_string(values[i]);
  return text;
}

// "compute of devices 0-7"
std::string stream_names(const std::vector<const Stream*>& streams, Backend& backend) {
  std::map<std::string, std::vector<int>> devices;
  for (const Stream* s : streams) {
    const LocalDevice& device = backend.devices()[static_cast<std::size_t>(s->device_index())];
    add_once(devices[s == device.comm ? "comm" : "compute"], device.device.id());
  }
  std::string text;
  for (const auto& [name, ids] : devices) {
    text += (text.empty() ? "" : " and ") + name +
            (ids.size() == 1 ? " of device " : " of devices ") + ranges(ids);
  }
  return text;
}

bool share_a_stream(const GraphTask& a, const GraphTask& b) {
  return std::any_of(a.streams.begin(), a.streams.end(), [&](const Stream* s) {
    return std::find(b.streams.begin(), b.streams.end(), s) != b.streams.end();
  });
}

}  // namespace

std::string step_text(const PlanStep& step) {
  const Primitive& primitive = *step.eqn->primitive;
  std::string operands, results;
  for (std::size_t i = 0; i < step.in.size(); ++i) {
    operands += ' ';
    if (step.in[i] < 0) {
      const auto& literal = static_cast<const LiteralNode&>(*node_of(step.eqn->in[i].literal()));
      operands += detail::format_scalar(literal.value, literal.type.dtype());
    } else {
      operands += "%" + std::to_string(step.in[i]) + (step.is_last(i) ? "!" : "");
    }
  }
  for (std::size_t o = 0; o < step.out.size(); ++o) {
    results += (o ? " " : "") +
               (step.out[o] < 0 ? std::string("_") : "%" + std::to_string(step.out[o])) + ":" +
               to_string(step.out_types[o]);
  }
  const std::string params = to_string(*step.eqn->params);
  return (primitive.group       ? "comm    "
          : primitive.interpret ? "host    "
          : primitive.view      ? "view    "
                                : "compute ") +
         results + (results.empty() ? "" : " = ") + primitive.name +
         (params.empty() ? "" : "[" + params + "]") + operands;
}

std::string Segment::graph_text(const Executable& executable) const {
  const MemoryLayout& layout = executable.layout;
  // Where each value is. Views of a value, and values that are passed on, share its slot.
  std::map<std::int64_t, std::vector<int>> values;
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    for (std::size_t o = 0; o < steps_[s].out.size(); ++o) {
      if (steps_[s].out[o] < 0) continue;
      for (std::int64_t slot : executable.steps[s].slots[o])
        if (slot >= 0) add_once(values[slot], steps_[s].out[o]);
    }
  }
  std::string text = "  graph: " + counted(executable.graph->nodes(), "task") + ", " +
                     counted(executable.graph->edges(), "edge") + "\n";
  for (std::size_t s = 0; s < layout.slabs.size(); ++s) {
    const MemoryLayout::Slab& slab = layout.slabs[s];
    text += "  memory of " + slab.space->name() + ": " + std::to_string(slab.bytes) + " bytes (" +
            std::to_string(slab.lower_bound) + " alive at once)\n";
    for (std::size_t k = 0; k < layout.places.size();) {
      const MemoryLayout::Allocation& place = layout.places[k];
      if (place.slab != static_cast<std::int32_t>(s)) {
        ++k;
        continue;
      }
      // Consecutive slots of one size that hold the same values are printed as one line.
      std::size_t end = k + 1;
      for (; end < layout.places.size(); ++end) {
        const MemoryLayout::Allocation &last = layout.places[end - 1], &next = layout.places[end];
        if (next.slab != place.slab || next.bytes != place.bytes ||
            next.offset != last.offset + MemoryLayout::rounded(last.bytes) ||
            values[static_cast<std::int64_t>(end)] != values[static_cast<std::int64_t>(k)])
          break;
      }
      const std::vector<int>& names = values[static_cast<std::int64_t>(k)];
      text += end == k + 1 ? "    slot " + std::to_string(k)
                           : "    slots " + std::to_string(k) + "-" + std::to_string(end - 1);
      text += ": " + std::to_string(place.bytes) + " bytes" + (end == k + 1 ? "" : " each") +
              " at " + std::to_string(place.offset) + ", " +
              (names.empty() ? "scratch" : value_names(names)) + "\n";
      k = end;
    }
  }
  std::int64_t bytes = 0;
  for (const BufferRef& b : executable.outputs->buffers) bytes += b->bytes();
  return text + "  output sets: " + std::to_string(sets_.size()) + ", of " +
         counted(std::ssize(executable.outputs->buffers), "buffer") + " and " +
         counted(bytes, "byte") + "\n";
}

std::string Segment::text() const {
  const Executable* latest = nullptr;
  for (const Executables* all : {&executables_, &with_fixed_})
    for (const auto& e : *all)
      if (!latest || e->last_used > latest->last_used) latest = e.get();
  std::vector<GraphTask> tasks;
  std::vector<int> step_of;
  if (latest) {
    tasks = latest->graph->tasks();
    for (std::size_t s = 0; s < steps_.size(); ++s)
      step_of.resize(static_cast<std::size_t>(latest->steps[s].end), static_cast<int>(s));
  }
  std::string text;
  std::size_t task = 0;
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    text += "  step " + std::to_string(s) + ": " + step_text(steps_[s]) + "\n";
    if (!latest) continue;
    const std::size_t first = task, end = static_cast<std::size_t>(latest->steps[s].end);
    std::vector<const Stream*> streams;
    std::vector<int> awaited;
    for (; task < end; ++task) {
      streams.insert(streams.end(), tasks[task].streams.begin(), tasks[task].streams.end());
      for (int before : tasks[task].after) {
        const GraphTask& b = tasks[static_cast<std::size_t>(before)];
        const int step = step_of[static_cast<std::size_t>(before)];
        if (step != static_cast<int>(s) && !share_a_stream(b, tasks[task])) add_once(awaited, step);
      }
    }
    if (end == first) continue;  // a view, or a value that is known without computing
    text += "    " + counted(static_cast<std::int64_t>(end - first), "task") + " on " +
            stream_names(streams, mesh_.backend());
    if (!awaited.empty()) {
      text += ", after the events of step" + std::string(awaited.size() == 1 ? " " : "s ") +
              ranges(awaited);
    }
    text += "\n";
  }
  return text + (latest ? graph_text(*latest) : "  not captured yet\n");
}

}  // namespace shmap
