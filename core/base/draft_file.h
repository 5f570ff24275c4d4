// DraftFile: a file that gets its name only when it is complete.
//
// The file is created under a random name in its final folder. Therefore the draft of a killed
// process does not occupy a name that anybody needs, no other process can put a file or link at the
// name of the next draft in advance, and the final rename stays within one file system. The process
// holds a lock on its draft. A draft of this user that no process has locked, and that was not
// written to for a minute, is left over from a dead process; the process that creates the next
// draft in that folder removes it. (The minute is needed because file systems shared by several
// machines may not share locks.)
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
  // permissions, which the umask restricts unless `exact` is true. `what` begins the error
  // messages: "npy file 'x.npy'". Throws Error where the system refuses.
  DraftFile(int folder, mode_t mode, bool exact, std::string what);
  // Opens a draft that another process has created and will commit; this object only writes to the
  // draft and never removes it. Throws Error where the system refuses.
  DraftFile(int folder, const std::string& name, std::string what);
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;
  ~DraftFile();  // removes the file, unless it was committed

  int fd() const noexcept { return fd_.get(); }
  // The name of the draft in the folder; empty once it is committed, or if another process created
  // it.
  const std::string& name() const noexcept { return name_; }
  // Writes all bytes at that offset; throws Error where the system refuses. Several threads may
  // write at once, to disjoint ranges.
  void write(std::int64_t offset, const std::byte* src, std::int64_t count);
  // Blocks until all bytes written so far would survive a loss of power. Throws Error where the
  // system refuses.
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
  // Bytes written since the transfer of written bytes to the disk was last started.
  std::atomic<std::int64_t> behind_{0};
};

}  // namespace shmap
