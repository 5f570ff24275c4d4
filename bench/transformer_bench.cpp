// The transformer layer of support/transformer_layer.h, forward. Every result is compared with the
// same layer in double, on one of the batch's sequences.
//
//   transformer_bench --memory   prints the bytes that its data took at their peak, under jit:
//                                arguments, result, everything between; one memory space
#include <shmap/shmap.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/first_calls.h"
#include "bench/support/peak_memory.h"
#include "bench/support/rows.h"
#include "bench/support/transformer_layer.h"

namespace {

using namespace shmap;
using bench::Row;
using bench::Work;

using namespace bench::transformer;

// ------------------------------------------------------------------------------------------- rows

Work forward(bool jitted) {
  auto t = std::make_shared<Data>();
  auto result = std::make_shared<Array>();
  auto want = std::make_shared<Doubles>(reference(*t, kChecked));
  const auto row = [=](auto f) -> Work {
    auto call = [f, result, x = t->input(), w = t->weights()] {
      *result = Array();  // the next result reuses its memory
      *result = f(x, w);
      result->block_until_ready();
    };
    return {call, [=] { return compare(*result, *want); }, {}};
  };
  return jitted ? row(jit(t->mapped())) : row(t->mapped());
}

// Times tracing, lowering, fusing and planning, until the first call returns. Its work is queued by
// then, and awaited outside of the time. first_two: times two calls, the second of which captures
// the plan, until both results are there.
Work first_calls(bool first_two) {
  auto t = std::make_shared<Data>();
  auto result = std::make_shared<Array>();
  auto want = std::make_shared<Doubles>(reference(*t, kChecked));
  auto time_batch = [=, x = t->input(), w = t->weights()](std::int64_t n) {
    double seconds = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      *result = Array();
      auto f = jit([mapped = t->mapped()](Array x, Layer w) { return mapped(x, w); });
      const auto call = [&] { *result = f(x, w); };
      seconds += first_two ? bench::seconds_of_two(call, [&] { result->block_until_ready(); })
                           : bench::seconds_of(call);
      result->block_until_ready();
    }
    return seconds;
  };
  return {{}, [=] { return compare(*result, *want); }, time_batch};
}

// Prints the peak bytes of all memory spaces over replays.
int print_memory() {
  const Data t;
  const Array x = t.input();
  const Layer w = t.weights();
  const auto f = jit(t.mapped());
  Array result;
  const auto call = [&] {
    result = Array();
    result = f(x, w);
    result.block_until_ready();
  };
  return bench::print_peak_memory("transformer layer", call,
                                  [&] { return compare(result, reference(t, kChecked)); });
}

}  // namespace

int main(int argc, char** argv) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  init(argc, argv, {.devices = devices == nullptr ? "cpu:8" : devices});
  if (argc > 1 && std::strcmp(argv[1], "--memory") == 0) return print_memory();
  return bench::bench_main(
      argc, argv, "shmap_layer",
      {{"transformer", {.flops = kForwardFlops}, [] { return forward(true); }},
       {"transformer_eager", {.flops = kForwardFlops}, [] { return forward(false); }},
       {"transformer_first_call", {}, [] { return first_calls(false); }},
       {"transformer_first_two_calls", {}, [] { return first_calls(true); }}},
      {{"devices", devices == nullptr ? "cpu:8" : devices}});
}
