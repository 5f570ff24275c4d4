// Orders this process's checkpoints in a folder: a checkpoint is written when all saves that were
// requested before it have been written or have failed.
#pragma once
#include <cstdint>
#include <string>

namespace shmap::io {

// A save in the folder's queue, from the constructor to the destructor. In a forked child the
// constructor and wait() throw DeviceError, and the destructor does nothing.
class SaveTurn {
 public:
  // Throws Error on a thread that is writing a checkpoint into this folder (in a progress
  // callback), since it would wait for itself.
  explicit SaveTurn(const std::string& folder);
  SaveTurn(const SaveTurn&) = delete;
  SaveTurn& operator=(const SaveTurn&) = delete;
  ~SaveTurn();

  // Blocks until all earlier saves have ended. The calling thread is the one that writes.
  void wait();

 private:
  std::string key_;
  std::uint64_t number_ = 0;
  bool came_ = false;
  const SaveTurn* outer_ = nullptr;  // the turn that this thread had before
};

}  // namespace shmap::io
