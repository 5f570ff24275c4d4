#include "core/runtime/segment.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/base/scope_names.h"
#include "core/base/warning.h"
#include "core/device/backend.h"
#include "core/device/host_log.h"
#include "core/device/span_label.h"
#include "core/ir/enter_blocks.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/runtime/collective_numbers.h"
#include "core/runtime/launch.h"
#include "core/runtime/op_site.h"
#include "core/runtime/operands_in_transfer.h"
#include "core/runtime/reshard.h"
#include "core/runtime/step.h"
#include "core/runtime/step_label.h"
#include "shmap/error.h"

namespace shmap {

namespace {

// A program that is called with new arrays each time gains nothing from more graphs.
constexpr std::size_t kMaxExecutables = 8;
// Addresses that recur kWorthCapturing times, while the segment remembers only kRemembered sets of
// missed addresses, get a graph of their own, in place of the least recently used one. To capture
// costs as much as several such calls.
constexpr int kWorthCapturing = 8;
constexpr std::size_t kRemembered = 4;
// After a capture that found too little memory, so many calls run step by step.
constexpr std::uint64_t kRunsWithoutMemory = 8;
// Inputs beyond this size are not copied at each call: the work is then so large that to run its
// steps one by one costs little in comparison.
constexpr std::int64_t kMaxFixedBytes = std::int64_t{64} << 20;

std::atomic<std::int64_t> captured_graphs{0};

// Copies a table with the same layout, and map(buffer) in place of each buffer.
template <class Map>
Array with_buffers(const StoredNode& node, Map map) {
  Array copy = relabel(node, node.type, node.sharding, node.trace, node.committed);
  for (Block& b : stored_of(copy)->blocks()) b.buffer = map(b.buffer);
  return copy;
}

// Adjacent blocks are mostly in one buffer. A buffer that is added twice costs little time; to
// search for it would cost more on many devices.
void add_buffers(std::vector<Buffer*>& list, std::span<const Block> blocks) {
  const Buffer* last = nullptr;
  for (const Block& b : blocks) {
    if (b.buffer.get() != last) list.push_back(b.buffer.get());
    last = b.buffer.get();
  }
}

// For each value that a segment reads, the type that its steps use.
std::vector<ShapedArray> types_read(const std::vector<PlanStep>& steps,
                                    const std::vector<int>& slots) {
  std::unordered_map<int, const ShapedArray*> types;
  for (const PlanStep& step : steps)
    for (std::size_t i = 0; i < step.in.size(); ++i)
      types.try_emplace(step.in[i], &step.in_types[i]);
  std::vector<ShapedArray> read;
  for (int slot : slots) read.push_back(*types.at(slot));
  return read;
}

// Wraps the labels in a buffer that each launch uses, so that the labels live until the last launch
// is done, which may be after the graph's owner is gone.
BufferRef buffer_of(std::unique_ptr<KeptLabels> labels, MemorySpace& space) {
  const auto destroy = [](void* context) noexcept { delete static_cast<KeptLabels*>(context); };
  BufferRef buffer = space.wrap(labels.get(), 0, destroy, labels.get());
  labels.release();
  return buffer;
}

}  // namespace

std::int64_t graphs_captured() noexcept { return captured_graphs.load(); }

Segment::Segment(const detail::MeshImpl* mesh, std::vector<PlanStep> steps, std::vector<int> in,
                 std::vector<int> out, std::vector<bool> last_in)
    : mesh_(*mesh),
      steps_(std::move(steps)),
      in_(std::move(in)),
      out_(std::move(out)),
      last_in_(std::move(last_in)),
      fixed_(*mesh, types_read(steps_, in_)) {
  std::unordered_map<int, const ShapedArray*> types;
  for (const PlanStep& step : steps_)
    for (std::size_t o = 0; o < step.out.size(); ++o) types[step.out[o]] = &step.out_types[o];
  for (int slot : out_) out_types_.push_back(*types.at(slot));
}

void Segment::run_steps(std::vector<Array>& values, std::vector<StepTasks>* captured) const {
  const ScopesHidden hidden;  // replays may be called from any scope, too
  OperandsInTransfer held;
  for (const PlanStep& step : steps_) {
    held.before(step);
    std::vector<Array> in;
    in.reserve(step.in.size());
    for (std::size_t i = 0; i < step.in.size(); ++i) {
      const int slot = step.in[i];
      if (slot < 0) {
        in.push_back(step.eqn->in[static_cast<std::size_t>(~slot)].literal());
      } else if (step.is_last(i)) {
        in.push_back(std::move(values[static_cast<std::size_t>(slot)]));
      } else {
        in.push_back(values[static_cast<std::size_t>(slot)]);
      }
    }
    std::vector<Array> out;
    std::vector<StoredNode*> results;
    for (const ShapedArray& t : step.out_types) {
      StoredNode* node = StoredNode::make(t, &mesh_, mesh_.local_count());
      node->committed = true;
      out.push_back(Array::first(node));
      results.push_back(node);
    }
    run_step({*step.eqn->primitive, *step.eqn->params, mesh_, in, step.in_types, step.varying,
              step.eqn->source},
             step.out_types, results);
    held.hold(step, in, results);
    if (captured) {
      StepTasks& record = captured->emplace_back();
      record.end = mesh_.backend().captured();
      for (const StoredNode* node : results) {
        std::vector<std::int64_t>& slots = record.slots.emplace_back();
        for (const Block& b : node->blocks()) slots.push_back(tape_index(*b.buffer));
      }
    }
    for (std::size_t o = 0; o < out.size(); ++o)
      if (step.out[o] >= 0) values[static_cast<std::size_t>(step.out[o])] = std::move(out[o]);
  }
}

void Segment::make_key(const std::vector<Array>& inputs, const std::vector<bool>& given) {
  key_.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    key_.push_back(given[i] ? this : nullptr);
    for (const Block& b : stored_of(inputs[i])->blocks()) key_.push_back(b.data());
  }
}

bool Segment::has_same_addresses(const Executable& e, std::size_t input) const {
  const std::size_t width = 1 + static_cast<std::size_t>(mesh_.local_count());
  const auto at = static_cast<std::ptrdiff_t>(input * width);
  return std::equal(key_.begin() + at, key_.begin() + at + static_cast<std::ptrdiff_t>(width),
                    e.key.begin() + at);
}

// The collectives of a graph are those of the way that was active when it was captured.
bool Segment::serves(const Executable& e, const std::vector<Array>& inputs) const {
  if (e.numbers != 0 && e.way != way_) return false;
  if (!e.with_fixed) return e.key == key_;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!(fixed_.has(i) ? fixed_.fit(i, inputs[i]) : has_same_addresses(e, i))) return false;
  return true;
}

Segment::Executable* Segment::find(const Executables& among,
                                   const std::vector<Array>& inputs) const {
  for (const auto& e : among)
    if (e->outputs->is_free() && serves(*e, inputs)) return e.get();
  return nullptr;
}

bool Segment::pays_to_capture() {
  for (Missed& m : missed_) {
    if (m.key != key_) continue;
    m.last = runs_;
    return ++m.times % kWorthCapturing == 0;
  }
  if (missed_.size() < kRemembered) {
    missed_.push_back({key_, 1, runs_});
  } else {
    *std::min_element(missed_.begin(), missed_.end(), [](const Missed& a, const Missed& b) {
      return a.last < b.last;
    }) = {key_, 1, runs_};
  }
  return false;
}

// Gives fixed memory to the inputs whose addresses differ from those of the most similar graph. If
// there are already as many graphs with fixed memory as allowed, and no further input differs, then
// the output sets or the combinations of addresses are new at each call: all inputs then get fixed
// memory.
bool Segment::fix_inputs(const std::vector<Array>& inputs) {
  std::vector<bool> chosen(inputs.size(), false);
  std::int64_t most = -1;
  for (const Executables* all : {&executables_, &with_fixed_}) {
    for (const auto& e : *all) {
      std::int64_t alike = 0;
      std::vector<bool> differs(inputs.size(), false);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (fixed_.has(i)) continue;
        differs[i] = !has_same_addresses(*e, i);
        if (!differs[i]) alike += 1 + fixed_.bytes(i, inputs[i]);
      }
      if (alike <= most) continue;
      most = alike;
      chosen = std::move(differs);
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (fixed_.has(i) && !fixed_.fit(i, inputs[i])) chosen[i] = true;
  if (std::find(chosen.begin(), chosen.end(), true) == chosen.end() &&
      with_fixed_.size() >= kMaxExecutables) {
    for (std::size_t i = 0; i < inputs.size(); ++i) chosen[i] = !fixed_.has(i);
  }
  std::int64_t bytes = fixed_.bytes();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (chosen[i]) bytes += fixed_.bytes(i, inputs[i]);
  if (bytes > kMaxFixedBytes) return false;
  if (std::find(chosen.begin(), chosen.end(), true) != chosen.end()) with_fixed_.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (chosen[i]) fixed_.add(i, inputs[i]);
  return true;
}

Segment::Executable* Segment::find_or_make_with_fixed(const std::vector<Array>& inputs,
                                                      std::vector<bool> given, std::size_t slots) {
  if (sets_.all_are_taken()) return nullptr;
  if (pays_to_capture()) return capture(executables_, inputs, given, slots);
  Executable* executable = find(with_fixed_, inputs);
  if (!executable) {
    if (!fix_inputs(inputs)) {
      if (!std::exchange(warned_, true)) {
        warn("a program under jit keeps being called with arrays at new addresses, of more than " +
             std::to_string(kMaxFixedBytes >> 20) +
             " MiB; it is run step by step, since a graph works only with the addresses of its "
             "capture. Call it with the same arrays, or give up the old ones (std::move) before "
             "new ones are made");
      }
      return nullptr;
    }
  }
  fixed_.fill(inputs);
  if (executable) return executable;
  // Fixed memory is never a caller's donation.
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (fixed_.has(i)) given[i] = false;
  return capture(with_fixed_, fixed_.in_place_of(inputs), given, slots);
}

void Segment::take_slabs(Executable& made) {
  // The k-th slab of a space, in each layout, is the k-th of that space in slabs_.
  for (const MemoryLayout::Slab& slab : made.layout.slabs) {
    const auto of_space = [&](const BufferRef& b) { return &b->space() == slab.space; };
    auto before = std::count_if(made.slabs.begin(), made.slabs.end(), of_space);
    auto known = std::find_if(slabs_.begin(), slabs_.end(),
                              [&](const BufferRef& b) { return of_space(b) && before-- == 0; });
    if (known == slabs_.end()) {
      known = slabs_.insert(known, slab.space->allocate(slab.bytes));
    } else if ((*known)->bytes() < slab.bytes) {
      *known = slab.space->allocate(slab.bytes);
    }
    made.slabs.push_back(*known);
  }
}

bool Segment::drop_free_set() noexcept {
  const std::shared_ptr<OutputSet> dropped = sets_.take_free();
  if (!dropped) return false;
  for (Executables* all : {&executables_, &with_fixed_})
    std::erase_if(*all, [&](const auto& e) { return e->outputs == dropped; });
  return true;
}

bool Segment::give_up_memory() noexcept {
  if (uses_graphs_) return false;
  // The memory of a set that is taken belongs to arrays of the caller: its graphs stay, too.
  bool any = false;
  while (drop_free_set()) any = true;
  if (with_fixed_.empty() && fixed_.bytes() != 0) {
    fixed_.clear();
    any = true;
  }
  if (executables_.empty() && with_fixed_.empty() && !slabs_.empty()) {
    slabs_.clear();
    any = true;
  }
  return any;
}

// Runs the steps on proxies of the inputs. An input that was not given up gets one more owner, so
// that no step overwrites it.
void Segment::run_on_proxies(const std::vector<Array>& inputs, const std::vector<bool>& given,
                             std::vector<Array>& values, std::vector<StepTasks>* captured) const {
  std::unordered_map<const Buffer*, BufferRef> proxies;
  std::vector<BufferRef> held;
  std::vector<Array> kept;  // inputs that stay alive, and inputs that must not be written
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Array x = with_buffers(*stored_of(inputs[i]), [&](const BufferRef& b) {
      BufferRef& proxy = proxies[b.get()];
      if (!proxy) proxy = proxy_of(b);
      return proxy;
    });
    if (!given[i])
      for (const Block& b : stored_of(x)->blocks()) held.push_back(b.buffer);
    if (!last_in_[i] || !given[i]) kept.push_back(x);
    values[static_cast<std::size_t>(in_[i])] = std::move(x);
  }
  proxies.clear();
  run_steps(values, captured);
  for (int slot : in_) values[static_cast<std::size_t>(slot)] = Array();
}

// The location of each result of a capture: a buffer of the output set, or a part of an input.
std::vector<std::vector<Segment::ResultBlock>> Segment::find_results(
    const std::vector<Array>& inputs, const OutputSet& set,
    const std::vector<Array>& values) const {
  std::unordered_map<const Buffer*, std::uint32_t> outputs;
  for (std::uint32_t k = 0; k < set.buffers.size(); ++k) outputs.emplace(set.buffers[k].get(), k);
  struct Place {
    std::uint32_t input, position;
    std::int64_t begin, end;  // in the buffer
  };
  std::unordered_map<const Buffer*, std::vector<Place>> from;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const auto blocks = stored_of(inputs[i])->blocks();
    for (std::uint32_t p = 0; p < blocks.size(); ++p) {
      std::vector<Place>& places = from[blocks[p].buffer.get()];
      const std::int64_t begin = blocks[p].offset, end = begin + fixed_.block_bytes(i);
      const bool is_new = std::ranges::none_of(
          places, [&](const Place& at) { return at.begin <= begin && end <= at.end; });
      if (is_new) places.push_back({i, p, begin, end});
    }
  }
  std::vector<std::vector<ResultBlock>> results;
  for (std::size_t o = 0; o < out_.size(); ++o) {
    std::vector<ResultBlock>& places = results.emplace_back();
    const std::int64_t bytes = out_types_[o].nbytes();
    for (const Block& b : stored_of(values[static_cast<std::size_t>(out_[o])])->blocks()) {
      const BufferRef real = behind(*b.buffer);
      if (const auto it = outputs.find(real.get()); it != outputs.end()) {
        places.push_back({ResultBlock::output, it->second, 0, b.offset});
      } else {
        // Other calls with these addresses may have the inputs in separate buffers: the result is a
        // part of the input that has all of its bytes. (Where none has, it lies in the memory of an
        // input that was given up.)
        const std::vector<Place>& in_buffer = from.at(real.get());
        auto at = std::ranges::find_if(in_buffer, [&](const Place& p) {
          return p.begin <= b.offset && b.offset + bytes <= p.end;
        });
        if (at == in_buffer.end()) at = in_buffer.begin();
        places.push_back({ResultBlock::input, at->input, at->position, b.offset - at->begin});
      }
    }
  }
  return results;
}

// Makes room among graphs of that kind by dropping the least recently used one.
Segment::Executable* Segment::keep(Executables& into, std::unique_ptr<Executable> made) {
  if (into.size() >= kMaxExecutables) {
    into.erase(std::min_element(into.begin(), into.end(), [](const auto& a, const auto& b) {
      return a->last_used < b->last_used;
    }));
  }
  into.push_back(std::move(made));
  return into.back().get();
}

Segment::Executable* Segment::capture(Executables& into, const std::vector<Array>& inputs,
                                      const std::vector<bool>& given, std::size_t slots) {
  if (sets_.all_are_taken()) return nullptr;
  const HostSpanScope logged("capture");
  Backend& backend = mesh_.backend();
  auto made = std::make_unique<Executable>();
  {
    UncountedScope uncounted;
    std::vector<Array> values(slots);
    MemoryRehearsal rehearsal;
    CaptureScope capture(backend);
    captured_numbers() = 0;
    run_on_proxies(inputs, given, values);
    made->layout = plan_layout(rehearsal.finish());
  }
  made->outputs = sets_.free_set(made->layout);
  if (!made->outputs && drop_free_set()) made->outputs = sets_.free_set(made->layout);
  if (!made->outputs) return nullptr;
  take_slabs(*made);
  {
    UncountedScope uncounted;
    std::vector<Array> values(slots);
    PlacedMemory memory(made->layout, made->slabs, made->outputs->buffers);
    CaptureScope capture(backend);
    captured_numbers() = 0;
    auto labels = std::make_unique<KeptLabels>();
    {
      const KeptLabels::Scope labelled(*labels);
      run_on_proxies(inputs, given, values, &made->steps);
    }
    made->numbers = captured_numbers();
    memory.finish();
    made->results = find_results(inputs, *made->outputs, values);
    made->counted = uncounted.take();
    values.clear();
    made->graph = capture.end();
    if (!labels->empty())
      made->slabs.push_back(buffer_of(std::move(labels), *mesh_.local(0).space));
  }
  captured_graphs.fetch_add(1);
  made->key = key_;
  made->way = way_;
  made->with_fixed = &into == &with_fixed_;
  made->donated = given;
  return keep(into, std::move(made));
}

void Segment::launch(Executable& executable, std::vector<Array>& inputs,
                     std::vector<Array>& values) {
  executable.last_used = runs_;
  std::vector<Buffer*>&reads = reads_, &writes = writes_, &outputs = outputs_;
  for (std::vector<Buffer*>* list : {&reads, &writes, &outputs}) list->clear();
  const std::vector<Array> placed =
      executable.with_fixed ? fixed_.in_place_of(inputs) : std::vector<Array>();
  const std::vector<Array>& used = executable.with_fixed ? placed : inputs;
  for (std::size_t i = 0; i < used.size(); ++i)
    add_buffers(executable.donated[i] ? writes : reads, stored_of(used[i])->blocks());
  for (const BufferRef& b : executable.outputs->buffers) outputs.push_back(b.get());
  {
    std::lock_guard lock(mesh_.backend().submit_mutex());
    TaskWaits waits;
    if (!detail::nothing_pending(reads, writes)) detail::collect_waits(reads, writes, waits);
    // The output set was last written and read by another run, whose errors do not concern this
    // one.
    if (!detail::nothing_pending({}, outputs)) {
      for (Buffer* b : outputs) b->retire_definition();
      detail::collect_waits({}, outputs, waits);
    }
    const std::uint64_t first =
        executable.numbers == 0 ? 0 : take_numbers(mesh_, way_, executable.numbers);
    const Event event = [&] {
      try {
        return executable.graph->launch(waits.data, waits.order, first);
      } catch (...) {  // nothing was launched
        if (executable.numbers != 0) give_numbers_back(mesh_, way_, first);
        throw;
      }
    }();
    writes.insert(writes.end(), outputs.begin(), outputs.end());
    // Launches over one slab are ordered by their streams; the slab's memory is returned after the
    // last launch.
    for (const BufferRef& b : executable.slabs) writes.push_back(b.get());
    if (event.record() != nullptr) {
      detail::note_launch(event, reads, writes);
    } else {
      for (Buffer* b : outputs) {  // all work is done; an earlier failure no longer matters
        b->def() = Event();
        b->clear_uses();
      }
    }
  }
  executable.counted.add();
  log_memory_of(mesh_);
  for (std::size_t o = 0; o < out_.size(); ++o) {
    const ResultBlock* const places = executable.results[o].data();
    const BufferRef* const made = executable.outputs->buffers.data();
    StoredNode* node = StoredNode::make(out_types_[o], &mesh_, mesh_.local_count());
    node->committed = true;
    Array result = Array::first(node);
    struct Place {
      const BufferRef& buffer;
      std::int64_t offset;
    };
    enter_blocks(node->blocks(), [&](std::size_t p) -> Place {
      const ResultBlock& at = places[p];
      if (at.kind == ResultBlock::output) return {made[at.index], at.offset};
      const Block& input = stored_of(inputs[at.index])->blocks()[at.position];
      return {input.buffer, input.offset + at.offset};
    });
    values[static_cast<std::size_t>(out_[o])] = std::move(result);
  }
}

void Segment::run(std::vector<Array>& values) {
  // The numbers of several ways have no common first one, which a launch would need.
  const std::optional<std::uint64_t> way = only_way(mesh_);
  if (++runs_ == 1 || checks_nans() || steps_.empty() || !way) return run_steps(values);
  way_ = *way;
  // Emptied when the call ends, also by an exception.
  struct Inputs {
    Inputs(std::vector<Array>& a, bool& u) : arrays(a), uses_graphs(u) { uses_graphs = true; }
    ~Inputs() {
      arrays.clear();
      uses_graphs = false;
    }
    Inputs(const Inputs&) = delete;
    Inputs& operator=(const Inputs&) = delete;
    std::vector<Array>& arrays;
    bool& uses_graphs;
  } const held(inputs_, uses_graphs_);
  std::vector<Array>& inputs = inputs_;
  inputs.reserve(in_.size());
  for (std::size_t i = 0; i < in_.size(); ++i) {
    Array& x = values[static_cast<std::size_t>(in_[i])];
    inputs.push_back(last_in_[i] ? std::move(x) : x);
  }
  const std::vector<bool>& given = donated_.find(inputs, last_in_, sets_);
  make_key(inputs, given);
  Executable* executable = find(executables_, inputs);
  if (!executable && runs_ >= no_capture_before_) {
    try {
      executable = executables_.size() < kMaxExecutables
                       ? capture(executables_, inputs, given, values.size())
                       : find_or_make_with_fixed(inputs, given, values.size());
    } catch (const OutOfMemory&) {
      // Step by step, a value's memory is free again after its last use.
      uses_graphs_ = false;
      give_up_memory();
      no_capture_before_ = runs_ + kRunsWithoutMemory;
    }
  }
  if (executable) return launch(*executable, inputs, values);
  for (std::size_t i = 0; i < in_.size(); ++i)
    if (last_in_[i]) values[static_cast<std::size_t>(in_[i])] = std::move(inputs[i]);
  inputs.clear();
  uses_graphs_ = false;
  run_steps(values);
}

}  // namespace shmap
