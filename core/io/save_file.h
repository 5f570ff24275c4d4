// Writes a file that consists of a head and arrays, by this process alone or jointly by all
// processes that have blocks of the arrays (core/io/joint_save.h).
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/io/array_blocks.h"

namespace shmap::io {

struct PlacedArray {
  Array array;
  std::int64_t at = 0;  // the offset in the file
};

struct FileToSave {
  const char* what;  // the public function's name
  std::string kind, path;
  SourceLine source;
};

// Blocks until the file is on the disk. Errors: those of OutputFile, write_blocks and JointSave.
void save_file(const FileToSave& to, const std::string& head, std::span<const PlacedArray> arrays,
               std::int64_t bytes, const FileOptions& options);

}  // namespace shmap::io
