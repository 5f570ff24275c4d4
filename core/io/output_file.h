// Writes a new file by offsets and by boxes of row-major arrays. The file gets its name only in
// commit(), so that a reader finds either the old file or the whole new one
// (core/base/draft_file.h). Without commit() the draft is removed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/base/draft_file.h"
#include "core/base/file_descriptor.h"
#include "shmap/shape.h"
#include "shmap/slice.h"

namespace shmap::io {

class OutputFile {
 public:
  // An existing file's permissions are kept. Links are followed, also dangling links: the file is
  // created at their target. ValueError where the path names something other than a regular file or
  // contains a null character, Error where the operating system refuses. `kind`: as in InputFile.
  OutputFile(const std::string& kind, const std::string& path);
  // Opens the draft that another process has begun, and which that process commits.
  OutputFile(const std::string& kind, const std::string& path, const std::string& draft);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& name() const { return what_; }  // "npy file 'x.npy'"
  // Sets the file's size, so that a full disk is noticed at once.
  void set_size(std::int64_t bytes);
  // Several threads may call these at once, for bytes that do not overlap. `src` holds the box's
  // elements row-major.
  void write(std::int64_t offset, const void* src, std::int64_t count);
  std::int64_t write_box(std::int64_t base, const Shape& shape, std::span<const Slice> box,
                         int itemsize, const void* src);  // returns the bytes written
  // for an OutputFile that has created the draft itself
  const std::string& draft() const { return draft_->name(); }
  void sync() { draft_->sync(); }
  // When it returns, the file survives a loss of power.
  void commit();

 private:
  void open_folder(const std::string& path);

  std::string what_;
  FileDescriptor folder_;
  std::string name_;  // in the folder
  std::optional<DraftFile> draft_;
};

}  // namespace shmap::io
