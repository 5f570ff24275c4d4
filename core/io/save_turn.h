// The order of this process's checkpoints in a folder: each is written when those that were asked
// for before it are there, or have failed.
#pragma once
#include <cstdint>
#include <string>

namespace shmap::io {

// A place in the folder's queue, from the constructor on; the destructor gives it up, in order.
class SaveTurn {
 public:
  // Error on a thread that is writing a checkpoint there, which would wait for itself: a progress
  // callback's.
  explicit SaveTurn(const std::string& folder);
  SaveTurn(const SaveTurn&) = delete;
  SaveTurn& operator=(const SaveTurn&) = delete;
  ~SaveTurn();

  // Blocks until those before it are done. What is written until the destructor is written by this
  // thread.
  void wait();

 private:
  std::string key_;
  std::uint64_t number_ = 0;
  bool came_ = false;
  const SaveTurn* outer_ = nullptr;  // that this thread had before
};

}  // namespace shmap::io
