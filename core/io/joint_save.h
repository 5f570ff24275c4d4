// JointSave: one file that several processes write together, each what it owns.
//
// The first of them leads: it makes the draft and tells the others its name; all write and sync;
// the others report, and the leader gives the file its name and tells them. What goes wrong in one
// process is an error in all that names it, and then the draft is removed. A process that dies is
// noticed as in any collective.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/io/array_blocks.h"

namespace shmap::io {

class JointSave {
 public:
  // Of those that have parts of `arrays`, which every process gives alike; `what` is the function's
  // name. `check`: of all that has to be the same in all of them. Takes a number, in the order of
  // the program; waits for nobody.
  JointSave(const char* what, std::span<const Array> arrays, std::uint64_t check,
            SourceLine source);

  // Whether any of these lies in several processes.
  static bool wanted(std::span<const Array> arrays);

  bool leads() const { return self_ == processes_.front(); }
  // The bytes of `x` that this process writes: its own blocks; of an array of this process alone,
  // which every process has, all in the leader and none elsewhere.
  std::int64_t bytes(const Array& x) const;
  // Writes them, by write_blocks or write_own_blocks.
  void write(const Array& x, ProgressCount& progress, const WriteBox& box) const;

  struct Steps {
    std::function<std::string()> begin;  // in the leader: makes the draft, and gives its name
    std::function<void(const std::string& draft)> write;  // in all: opens it elsewhere, and syncs
    std::function<void()> commit;                         // in the leader
  };
  // Once, on any thread. `notes` of the processes, as many bytes in each, are joined by `or` in the
  // leader before commit. Throws what a step threw here, an Error with the text of what it threw
  // elsewhere, or a CollectiveError; once it returns, the file is there.
  void run(const Steps& steps, std::span<std::byte> notes);

 private:
  void exchange(std::uint32_t round, bool to_leader, std::span<std::byte> mine,
                std::span<std::byte> others);

  const char* what_;
  SourceLine source_;
  std::uint64_t check_, space_ = 0, number_ = 0;
  int self_ = 0;
  std::vector<int> processes_;  // ascending
};

}  // namespace shmap::io
