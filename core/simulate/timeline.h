// The lanes of one device in simulated time: one for computation, and one for each level of links.
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
  // Trips of a loop that were not simulated one by one, since they equal the last simulated trip.
  struct Repeat {
    double begin_us, end_us;
    double exposed_us;
  };

  explicit Timeline(std::size_t levels) : free_(levels + 1, 0.0) {}

  // Appends an operation to its lane: it begins when its operands are ready and the lane's previous
  // operation has ended. Returns its end.
  double run(Span span, double ready_us);
  // The time from which a lane is free. Lane 0 computes; lane 1 + l is the network of level l.
  double free(std::size_t lane) const { return free_[lane]; }
  std::size_t lanes() const { return free_.size(); }
  // Adds further trips of a loop; the lanes in `moves` become free later by the trips' time.
  void repeat(const Repeat& repeat, const std::vector<bool>& moves, const std::string& name);

  // The time between begin and end in which lanes communicate and none computes. first: the first
  // span to consider.
  double exposed(double begin_us, double end_us, std::size_t first = 0) const;
  double exposed() const;
  double end() const;

  std::vector<Span> spans;
  std::vector<Repeat> repeats;

 private:
  std::vector<double> free_;
};

}  // namespace shmap::detail
