// DraftFile: a file that takes its name only once it is whole.
//
// It begins under a random name in the folder where it will stand, so that the name of a draft that
// a killed process left behind is in nobody's way, nobody can plant a file or link where the next
// draft comes, and the last rename stays within one file system. Its process holds a lock on it:
// drafts of this user that nobody holds and nobody has written to for a minute are of processes
// that died, and whoever makes the next draft in that folder removes them. (A minute, for file
// systems that several machines share without sharing locks.)
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/file_descriptor.h"

namespace shmap {

class DraftFile {
 public:
  // In the open folder, which stays the caller's and open. `mode`: the permissions; those that the
  // umask withholds come with `exact` only. `what` starts the messages: "npy file 'x.npy'". Throws
  // Error where the system refuses.
  DraftFile(int folder, mode_t mode, bool exact, std::string what);
  // One that another process has made and is about to commit: written to here, never committed or
  // removed.
  DraftFile(int folder, const std::string& name, std::string what);
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;
  ~DraftFile();  // removes it, unless it was committed

  int fd() const noexcept { return fd_.get(); }
  const std::string& name() const noexcept {
    return name_;
  }  // in the folder, until it is committed
  // All of them, at that offset; throws Error where the system refuses. Several threads may write
  // at once, what does not overlap.
  void write(std::int64_t offset, const std::byte* src, std::int64_t count);
  // Returns once what was written would survive a loss of power.
  void sync();
  // Renames it to `name` in the folder, in place of what stands there; `durable`: and returns once
  // both the file and its name would survive a loss of power. Throws Error where the system
  // refuses.
  void commit(const std::string& name, bool durable);

  // True for names of drafts.
  static bool is_draft_name(const char* name) noexcept;

 private:
  int folder_;
  std::string what_;
  std::string name_;  // empty once committed
  FileDescriptor fd_;
  std::atomic<std::int64_t> behind_{0};  // bytes written since the disk was told to begin
};

}  // namespace shmap
