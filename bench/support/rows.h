// Rows of a benchmark, and the process that serves them: one row is one kind of work in one size,
// set up once and then timed in rounds, so that two programs can be timed alternately.
//
// A program calls `bench_main` with its rows. Without arguments it times every row and prints a
// table; `--row NAME` times one alone (repeatable), `--list` prints their names, `--rounds N` and
// `--ms T` set how long (default 5 rounds of 100 ms, the median of the rounds is printed),
// `--json FILE` writes the figures too. `--serve` answers requests on standard input instead:
//
//   prepare ROW     makes the data, warms up, verifies      {"row": ROW}
//   round ROW MS    times calls for about MS milliseconds
//                                           {"row": ROW, "us": U, "calls": N, "faults": F}
//   release ROW     drops the data                          {"row": ROW}
//   quit
//
// Each answer is one JSON object in a line of standard output, after a first line
// {"ready": …, "rows": […]}. U is the median over batches of the time of a call in microseconds, F
// the number of page faults of a call. A result that does not verify answers
// {"row": ROW, "wrong": …}, prints `#wrong …` on standard error and makes the process's exit status
// 1; an exception answers {"row": ROW, "error": …} and leaves the other rows usable.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/json.h"

namespace shmap::bench {

// The numbers by which a row's time is converted to other units than µs per call. nccl-tests'
// definitions: algbw = bytes / time, busbw = algbw × bus_factor, where bytes is a rank's buffer
// (psum, ppermute), a rank's whole send buffer (psum_scatter, all_to_all) or a rank's whole result
// (all_gather).
struct Units {
  double flops = 0;       // per call; 0: no GFLOP/s
  double bytes = 0;       // per call; 0: no bandwidth
  double bus_factor = 1;  // factor of busbw
};

// The data of one row, ready to run.
struct Work {
  std::function<void()> call;          // makes one call; its result is complete on return
  std::function<std::string()> check;  // what is wrong with the latest result, or ""
  // Times n calls in seconds, instead of a loop over `call`: for work too short for one
  // std::function call each, or timed in other processes too.
  std::function<double(std::int64_t n)> time_batch;
  double parts = 1;  // divides a call's time: "µs a call and device"
  // The most calls of one round, and of the warm-up; 0: as many as fit. For work of which only a
  // small fraction is timed.
  std::int64_t max_calls = 0;
  // "about" in the answer to `prepare`: what the peers have to know, and what is compared.
  Json about = Json::object();
};

struct Row {
  std::string name;
  Units units;
  std::function<Work()> make;
};

struct Figure {
  double us = 0;           // per call: the median over batches
  std::int64_t calls = 0;  // number of timed calls
  double faults = 0;       // page faults of this process per call
};

// Thrown if a result is wrong.
struct WrongResult {
  std::string what;
};

// Runs `make`, one call, the check and the warm-up. Throws WrongResult.
class Prepared {
 public:
  explicit Prepared(const Row& row);
  // Runs one round of about `milliseconds` (at least one batch), then the check, which may throw
  // WrongResult.
  Figure round(double milliseconds);
  const Json& about() const { return work_.about; }

 private:
  double time_batch(std::int64_t n);
  void verify();

  Work work_;
  std::int64_t batch_ = 1;
};

// `versions`: pairs of a name and a version for the ready line and the JSON file. `named`: makes a
// row that is not in the list from its name, if a request asks for it.
int bench_main(int argc, char** argv, const std::string& program, const std::vector<Row>& rows,
               const std::vector<std::pair<std::string, std::string>>& versions = {},
               const std::function<std::optional<Row>(const std::string& name)>& named = {});

}  // namespace shmap::bench
