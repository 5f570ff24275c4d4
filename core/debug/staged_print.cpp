#include "core/debug/staged_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>

#include "core/array/print_array.h"
#include "core/base/counted.h"
#include "core/base/element_type.h"
#include "core/compiler/lowering/lower.h"
#include "core/device/at_exit.h"
#include "core/device/backend.h"
#include "core/ir/rules.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/kernel.h"
#include "core/runtime/launch.h"

namespace shmap {

namespace debug::detail {

namespace {

// Walks through a format: calls literal(c) for each plain character, hole(i, spec) for each {} or
// {:spec}. Returns the number of holes.
template <class Literal, class Hole>
std::size_t walk(std::string_view format, Literal literal, Hole hole) {
  std::size_t holes = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const char after = i + 1 < format.size() ? format[i + 1] : '\0';
    if ((c == '{' && after == '{') || (c == '}' && after == '}')) {
      literal(c);
      ++i;
    } else if (const std::size_t end = format.find('}', i);
               c == '{' && (after == '}' || (after == ':' && end != format.npos))) {
      hole(holes++, after == '}' ? std::string_view() : format.substr(i + 2, end - i - 2));
      i = end;
    } else {
      literal(c);
    }
  }
  return holes;
}

// A number is written in no more characters than that: a format may come from a text, and must not
// take memory out of proportion to its length.
constexpr std::size_t kMostColumns = 4096;

// Whether all numbers in the spec are at most kMostColumns.
bool is_narrow(std::string_view spec) {
  std::size_t number = 0;
  for (const char c : spec) {
    number = c >= '0' && c <= '9' ? number * 10 + static_cast<std::size_t>(c - '0') : 0;
    if (number > kMostColumns) return false;
  }
  return true;
}

// Escapes a brace, for use in a format.
void append_escaped(std::string& format, char c) {
  format += c;
  if (c == '{' || c == '}') format += c;
}

}  // namespace

std::string text_by_spec(const std::string& spec, DType dtype, const void* element) {
  if (dtype == DType::prng_key)
    throw ValueError(
        "debug::print: a random key has no format spec, which is for numbers: print it with {}");
  const std::string format = "{:" + spec + "}";
  return with_plain(dtype, [&]<class T>() {
    T value;
    __builtin_memcpy(static_cast<void*>(&value), element, sizeof(T));
    const auto text = [&](auto number) { return fmt::format(fmt::runtime(format), number); };
    if constexpr (std::is_same_v<T, bool> || std::is_floating_point_v<T>)
      return text(value);
    else if constexpr (!std::is_integral_v<T>)
      return text(static_cast<float>(value));
    else if constexpr (std::is_signed_v<T>)
      return text(static_cast<std::int64_t>(value));
    else
      return text(static_cast<std::uint64_t>(value));
  });
}

std::vector<std::string> hole_specs(std::string_view format) {
  std::vector<std::string> specs;
  walk(
      format, [](char) {}, [&](std::size_t, std::string_view spec) { specs.emplace_back(spec); });
  return specs;
}

void check_holes(std::string_view format, std::span<const PrintArgument> arguments,
                 SourceLine source) {
  const auto given = [&] { return "debug::print: the format \"" + std::string(format) + "\""; };
  const std::vector<std::string> specs = hole_specs(format);
  if (specs.size() != arguments.size()) {
    throw ValueError(given() + " has " + std::to_string(specs.size()) + " {}, and the call gives " +
                     counted(arguments.size(), "argument") + ": one is wanted for each {}" +
                     at_line(source));
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].empty()) continue;
    const PrintArgument& a = arguments[i];
    const Node* node = node_of(a.array);
    if (node ? node->type.rank() > 0 : !a.is_number) {
      throw ValueError(given() + " has {:" + specs[i] + "} for argument " + std::to_string(i) +
                       (node ? ", an array of type " + to_string(node->type) : "") +
                       ": a spec is for numbers and arrays without dims; {} prints others" +
                       at_line(source));
    }
    if (!is_narrow(specs[i])) {
      throw ValueError(given() + " has {:" + specs[i] + "} for argument " + std::to_string(i) +
                       ": a width or precision of at most " + std::to_string(kMostColumns) +
                       " is wanted" + at_line(source));
    }
    try {
      const std::uint64_t zero = 0;
      text_by_spec(specs[i], node ? node->type.dtype() : a.dtype, node ? &zero : &a.bits);
    } catch (const fmt::format_error& e) {
      throw ValueError(given() + " has {:" + specs[i] + "} for argument " + std::to_string(i) +
                       ", which does not fit it (" + e.what() + "): wanted a spec like {:.3f}, " +
                       "{:>8} or {:#x}" + at_line(source));
    }
  }
}

std::string fill_holes(std::string_view format, std::span<const std::string> texts) {
  std::string out;
  walk(
      format, [&](char c) { out += c; }, [&](std::size_t i, std::string_view) { out += texts[i]; });
  return out;
}

std::string position_text(const shmap::detail::MeshImpl& mesh, std::uint32_t local) {
  std::string names, values;
  const std::vector<std::int64_t> at = mesh.coordinates(local);
  for (std::size_t a = 0; a < at.size(); ++a) {
    names += (a ? " " : "") + mesh.env()->names[a] + ",";
    values += (a ? " " : "") + std::to_string(at[a]) + ",";
  }
  return "(" + names + ") = (" + values + ")";
}

void write_out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void stage_print(std::string_view format, const std::vector<PrintArgument>& arguments,
                 SourceLine source) {
  check_holes(format, arguments, source);
  PrintParams params;
  std::vector<Array> operands;
  walk(
      format, [&](char c) { append_escaped(params.format, c); },
      [&](std::size_t i, std::string_view spec) {
        const PrintArgument& a = arguments[i];
        if (a.array.node()) {
          params.format += spec.empty() ? "{}" : "{:" + std::string(spec) + "}";
          operands.push_back(a.array);
        } else {
          const std::string text =
              spec.empty() ? a.text : text_by_spec(std::string(spec), a.dtype, &a.bits);
          for (char c : text) append_escaped(params.format, c);
        }
      });
  bind_all(debug_print_p, operands, params, source);
}

}  // namespace debug::detail

namespace {

using debug::detail::PrintArgument;

int no_results(Types, const Params&) { return 0; }
void eval_nothing(Types, const Params&, std::span<ShapedArray>) {}
// Operands may vary over different axes.
void vary_nothing(Types, const Params&, const detail::AxisEnv&, std::span<ShapedArray>) {}

void print_now(std::span<Array> in, const Params& params, std::span<Array>, SourceLine source) {
  std::vector<PrintArgument> arguments;
  for (Array& x : in) arguments.push_back({std::move(x), {}});
  debug::detail::write_out(
      debug::detail::format(params_as<PrintParams>(params).format, arguments, source));
}

// Prints a line for each example of the batch.
void batch_print(BatchCall& call) {
  for (std::int64_t k = 0; k < call.size; ++k) {
    std::vector<Array> one;
    for (std::size_t i = 0; i < call.in.size(); ++i) {
      const Array& x = call.in[i];
      const int dim = call.dims[i];
      if (dim < 0) {
        one.push_back(x);
        continue;
      }
      const Shape& whole = node_of(x)->type.dims();
      Shape shape;
      for (int d = 0; d < whole.rank(); ++d)
        if (d != dim) shape.push_back(whole[static_cast<std::size_t>(d)]);
      one.push_back(bind_reshape(slice_dim(x, dim, k, k + 1, call.source), shape, call.source));
    }
    current_trace().process(call.primitive, one, call.params, {}, call.source);
  }
}

// A global array prints as a whole.
void lower_print(LowerCall& call) {
  std::vector<Array> blocks;
  for (const LowerValue& x : call.in) {
    blocks.push_back(call.lowering
                         .reshard(x, call.lowering.mesh()->replicated(),
                                  "debug::print: an argument", call.source)
                         .block);
  }
  TraceScope scope(call.lowering.trace());
  call.lowering.trace().process(debug_print_p, blocks, call.params, {}, call.source);
}

// The task that prints; in a graph it runs at each launch.
class PrintReader final : public HostReader {
 public:
  explicit PrintReader(const GroupCall& call)
      : format_(params_as<PrintParams>(call.params).format),
        specs_(debug::detail::hole_specs(format_)),
        mesh_(&call.mesh) {
    bool varies = false;
    for (const StoredNode* node : call.in) varies = varies || !node->type.axes().empty();
    lines_ = varies ? mesh_->local_count() : 1;
    varies_ = varies;
    for (const StoredNode* node : call.in) types_.push_back(node->type);
    for (std::uint32_t p = 0; p < lines_; ++p) {
      for (const StoredNode* node : call.in)
        values_.push_back({node->blocks()[p].data(), node->type.nbytes()});
    }
  }

  std::span<const HostRead> values() const { return values_; }

  void read(std::span<const void* const> values) const override {
    std::string lines;
    for (std::uint32_t p = 0; p < lines_; ++p) {
      std::vector<std::string> texts;
      for (std::size_t i = 0; i < types_.size(); ++i) {
        const void* const value = values[p * types_.size() + i];
        const DType dtype = types_[i].dtype();
        texts.push_back(specs_[i].empty() ? detail::format_array(value, dtype, types_[i].dims())
                                          : debug::detail::text_by_spec(specs_[i], dtype, value));
      }
      if (varies_) lines += debug::detail::position_text(*mesh_, p) + " ";
      lines += debug::detail::fill_holes(format_, texts) + "\n";
    }
    debug::detail::write_out(lines);
  }

 private:
  std::string format_;
  std::vector<std::string> specs_;
  const detail::MeshImpl* mesh_;
  std::vector<ShapedArray> types_;
  std::vector<HostRead> values_;  // line by line
  std::uint32_t lines_ = 1;
  bool varies_ = false;
};

// The streams that prints were enqueued to. Before the process ends, they are waited for, so that
// all prints are written.
class PrintStreams final : public detail::BeforeStop {
 public:
  static PrintStreams& get() {
    // Never destroyed: it is read at exit.
    static auto& streams = []() -> PrintStreams& {
      auto& made = *new PrintStreams;
      detail::call_before_stop(made);
      return made;
    }();
    return streams;
  }

  void note(Backend& backend, Stream* stream) {
    std::lock_guard lock(mutex_);
    const std::pair entry(&backend, stream);
    if (std::find(list_.begin(), list_.end(), entry) == list_.end()) list_.push_back(entry);
  }

  void before_stop() noexcept override {
    try {
      std::vector<std::pair<Backend*, Stream*>> list;
      {
        std::lock_guard lock(mutex_);
        list = list_;
      }
      for (const auto& [backend, stream] : list) {
        Event last;
        {
          std::lock_guard lock(backend->submit_mutex());
          last = stream->record();
        }
        last.wait();
      }
    } catch (...) {  // an error of unfinished work, while the process ends
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Backend*, Stream*>> list_;
};

void run_print(GroupCall& call) {
  PrintStreams::get().note(call.mesh.backend(), call.mesh.local(0).comm);
  std::vector<Buffer*> reads;
  std::int64_t bytes = 0;
  for (const StoredNode* node : call.in) {
    bytes += node->type.nbytes();
    for (const Block& b : node->blocks())
      if (std::find(reads.begin(), reads.end(), b.buffer.get()) == reads.end())
        reads.push_back(b.buffer.get());
  }
  LaunchSpec spec;
  spec.stream = call.mesh.local(0).comm;
  spec.name = "debug_print";
  spec.bytes = bytes;
  spec.cost_ns = 1000 + 10 * bytes;  // a rough cost of formatting the text
  std::lock_guard lock(call.mesh.backend().submit_mutex());
  launch(spec, reads, {},
         [ops = &device_ops(call.mesh.backend()), reader = make_ref<PrintReader>(call)](
             int, int, void* native) { ops->read_on_host(reader->values(), reader, native); });
}

}  // namespace

constinit Primitive debug_print_p = [] {
  Primitive p;
  p.name = "debug_print";
  p.abstract_eval = eval_nothing;
  p.result_count = no_results;
  p.variance = vary_nothing;
  p.group = run_print;
  p.has_effect = true;
  p.interpret = print_now;
  p.lower = lower_print;
  p.jvp = jvp_zero;
  p.transpose = Rule<TransposeFn>::none("it has no results, and so no cotangents");
  p.batching = Rule<BatchFn>(batch_print);
  return p;
}();

void register_debug_print() { register_primitive(debug_print_p); }

}  // namespace shmap
