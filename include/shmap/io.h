// Files of arrays. What a file holds is not trusted: any bytes give the right array or a ValueError
// that says what is wrong with them, and no more memory than the file's size and 16 MiB is taken.
// Every error names the file and the caller's line; OutOfMemory is one where the file is larger
// than the memory.
#pragma once
#include <string>

#include "shmap/array.h"
#include "shmap/partition_spec.h"

namespace shmap {

// A .npy file (NumPy's format, versions 1 to 3, C and Fortran order, either byte order) on the
// default device.
Array load_npy(const std::string& path, SourceLine source = SourceLine::current());
// The same, sharded: each memory space reads the bytes of its own blocks and no others.
Array load_npy(const std::string& path, const NamedSharding& sharding,
               SourceLine source = SourceLine::current());
// Writes version 1.0 in C order. bf16 is written as '<V2', as ml_dtypes does. A sharded array is
// written block by block, and from where it lies: no copy of it is made, but for pieces of 4 MiB of
// memory that the host cannot address.
//
// Once it returns, the file survives a loss of power; until then its path has the old file or none.
// It is written under a random name in the same folder, ".shmap-….draft", which takes the path's
// place at the end. A process that is killed meanwhile leaves that draft behind: it is in nobody's
// way, and the next save into the folder removes it once it is a minute old. The old file's
// permissions are kept, and links are followed.
void save_npy(const std::string& path, const Array& x, SourceLine source = SourceLine::current());

}  // namespace shmap
