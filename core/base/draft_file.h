// DraftFile: a file that gets its name only when it is complete.
//
// The file is created under a random name in its final folder. So the draft of a killed process
// blocks no name, no other process can put a file or link where the next draft will be, and the
// final rename stays within one file system. The process holds a lock on its draft. Drafts of this
// user that no process has locked, and that were not written to for a minute, are left over from
// dead processes; the next draft in that folder removes them. (A minute, because file systems
// shared by several machines may not share locks.)
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
  // Creates a draft in the open folder, which stays open and belongs to the caller. `mode`: the
  // permissions; those that the umask removes are granted only with `exact`. `what` begins the
  // error messages: "npy file 'x.npy'". Throws Error where the system refuses.
  DraftFile(int folder, mode_t mode, bool exact, std::string what);
  // Opens a draft that another process has created and will commit; this object only writes to it.
  DraftFile(int folder, const std::string& name, std::string what);
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;
  ~DraftFile();  // removes the file, unless it was committed

  int fd() const noexcept { return fd_.get(); }
  const std::string& name() const noexcept {
    return name_;
  }  // in the folder, until it is committed
  // Writes all bytes at that offset; throws Error where the system refuses. Several threads may
  // write at once, to disjoint ranges.
  void write(std::int64_t offset, const std::byte* src, std::int64_t count);
  // Blocks until all bytes written so far would survive a loss of power.
  void sync();
  // Renames the draft to `name` in the folder, replacing an existing file. `durable`: returns only
  // when the file and its name would survive a loss of power. Throws Error where the system
  // refuses.
  void commit(const std::string& name, bool durable);

  // True if the name is that of a draft.
  static bool is_draft_name(const char* name) noexcept;

 private:
  int folder_;
  std::string what_;
  std::string name_;  // empty once committed
  FileDescriptor fd_;
  std::atomic<std::int64_t> behind_{0};  // bytes written since the disk was last told to start
};

}  // namespace shmap
