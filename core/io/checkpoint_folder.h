// A folder of checkpoints: their file names, and the numbers of those that exist.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/file_descriptor.h"

namespace shmap::io {

class CheckpointFolder {
 public:
  enum class Make : bool { no, yes };
  // Make::yes creates the folder and its parents where they are missing. Error where the operating
  // system refuses.
  CheckpointFolder(const std::string& path, Make make);

  int fd() const { return fd_.get(); }
  const std::string& name() const { return what_; }  // "folder 'run1'"
  // The numbers of the checkpoints in the folder, ascending.
  std::vector<std::int64_t> numbers() const;
  bool has_drafts() const;
  // Removes the checkpoints of these numbers (ascending) except the last `count`.
  void keep(const std::vector<std::int64_t>& numbers, int count) const;

  // "checkpoint-00000001.shmap"
  static std::string file_name(std::int64_t number);
  static bool is_folder(const std::string& path);

 private:
  std::vector<std::string> entries() const;

  std::string what_;
  FileDescriptor fd_;
};

}  // namespace shmap::io
