// The lanes of one device under a virtual clock: one that computes, and one for each level of
// links.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shmap::detail {

struct Timeline {
  static constexpr int kCompute = -1;
  struct Span {
    int lane;  // kCompute, or the level of the links
    std::string name;
    double begin_us, end_us;
    std::int64_t bytes;
    double flops;
  };
  // Trips of a loop that were not simulated one by one, since each is like the last.
  struct Repeat {
    double begin_us, end_us;
    double exposed_us;
  };

  explicit Timeline(std::size_t levels) : free_(levels + 1, 0.0) {}

  // Puts an operation into its lane: it begins when its operands are there and what came before it
  // in the lane has ended. Returns its end.
  double run(Span span, double ready_us);
  // When a lane is free: 0 computes, 1 + l is level l.
  double free(std::size_t lane) const { return free_[lane]; }
  std::size_t lanes() const { return free_.size(); }
  // The trips that follow, which take so long together: lanes for which `moves` are free as much
  // later.
  void repeat(const Repeat& repeat, const std::vector<bool>& moves, const std::string& name);

  // Communicating while nothing is computed, between two times.
  // `first`: the first span to look at.
  double exposed(double begin_us, double end_us, std::size_t first = 0) const;
  double exposed() const;
  double end() const;

  std::vector<Span> spans;
  std::vector<Repeat> repeats;

 private:
  std::vector<double> free_;
};

}  // namespace shmap::detail
