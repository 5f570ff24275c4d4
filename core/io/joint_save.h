// JointSave: several processes write one file together, each its own blocks.
//
// The first process is the leader. It makes the draft, and tells the others the draft's name and
// which arrays the leader has whole. All write and sync. The others report to the leader, which
// renames the draft and tells the others. An error in one process is thrown in all, with the name
// of that process, and the draft is removed. A process that dies is noticed as in any collective.
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
  // The processes are those that have blocks of `arrays`, which all processes must give in the same
  // order. `what` is the public function's name. `check`: a hash of everything that must be the
  // same in all processes. Numbers the save, so that the processes must make their saves in the
  // same order. Does not wait. A process that has nothing of the arrays gets a ValueError.
  JointSave(const char* what, std::span<const Array> arrays, std::uint64_t check,
            SourceLine source);

  // True if one of these arrays is spread over several processes.
  static bool wanted(std::span<const Array> arrays);

  bool leads() const { return self_ == processes_.front(); }
  // The bytes of array i, which is `x`, that this process writes: its own blocks. An array of
  // which each process has its own copy is written by the leader. Call it only in step `write`:
  // before, this process does not know whether the leader has a copy of that array.
  std::int64_t bytes(std::size_t i, const Array& x) const;
  // Writes these bytes, by write_blocks or write_own_blocks.
  void write(std::size_t i, const Array& x, ProgressCount& progress, const WriteBox& box) const;

  struct Steps {
    std::function<std::string()> begin;  // in the leader: makes the draft and returns its name
    // in all processes: opens the draft (the leader has it open), writes and syncs
    std::function<void(const std::string& draft)> write;
    std::function<void()> commit;  // in the leader
  };
  // Called once, on any thread. `notes`: bytes of this process, as many as in every process; the
  // leader joins those of all processes by `or` before commit. Throws the exception of a step in
  // this process, an Error with the text of an exception in another process, or a CollectiveError.
  // When it returns, the file has its name.
  void run(const Steps& steps, std::span<std::byte> notes);

 private:
  bool writes_whole(std::size_t i) const;
  void exchange(std::uint32_t round, bool to_leader, std::span<std::byte> mine,
                std::span<std::byte> others);

  const char* what_;
  SourceLine source_;
  std::uint64_t check_, space_ = 0, number_ = 0;
  int self_ = 0;
  std::vector<int> processes_;  // ascending
  // By array: 1 if the leader has all of its blocks. Before the leader's message has arrived: 1 if
  // this process has all blocks.
  std::vector<std::byte> leader_has_whole_;
};

}  // namespace shmap::io
