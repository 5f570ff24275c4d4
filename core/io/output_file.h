// A file in the making, written by offsets and by boxes of row-major arrays in it. It takes its
// name only in commit(), so that a reader finds the old file or the whole new one
// (core/base/draft_file.h); what is not committed is removed.
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
  // A file that stands there keeps its permissions; links are followed, those to nothing too: the
  // file comes where they point. ValueError for a path that names something other than a regular
  // file or holds a null character, Error where the system refuses. `kind`: as of an InputFile.
  OutputFile(const std::string& kind, const std::string& path);
  // The same file of another process that has begun it: that one commits it.
  OutputFile(const std::string& kind, const std::string& path, const std::string& draft);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& name() const { return what_; }  // "npy file 'x.npy'"
  // Says how long it will be, for the system to refuse at once.
  void set_size(std::int64_t bytes);
  // These may be called from several threads at once, on bytes that do not overlap. `src` holds the
  // box's elements row-major.
  void write(std::int64_t offset, const void* src, std::int64_t count);
  std::int64_t write_box(std::int64_t base, const Shape& shape, std::span<const Slice> box,
                         int itemsize, const void* src);       // returns the bytes written
  const std::string& draft() const { return draft_->name(); }  // of one that was begun here
  void sync() { draft_->sync(); }
  // Once it returns, the file survives a loss of power.
  void commit();

 private:
  void open_folder(const std::string& path);

  std::string what_;
  FileDescriptor folder_;
  std::string name_;  // in the folder
  std::optional<DraftFile> draft_;
};

}  // namespace shmap::io
