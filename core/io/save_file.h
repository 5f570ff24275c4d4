// A file of a head and arrays behind it, written whole: by this process, or by all that have parts
// of the arrays, each what it owns (core/io/joint_save.h).
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/io/array_blocks.h"

namespace shmap::io {

struct PlacedArray {
  Array array;
  std::int64_t at = 0;  // in the file, row-major
};

struct FileToSave {
  const char* what;  // the function's name
  std::string kind, path;
  SourceLine source;
};

// Blocks until the file is there and on the disk. Errors: those of OutputFile, write_blocks and
// JointSave.
void save_file(const FileToSave& to, const std::string& head, std::span<const PlacedArray> arrays,
               std::int64_t bytes, const FileOptions& options);

}  // namespace shmap::io
