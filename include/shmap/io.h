// Files of arrays. What a file holds is not trusted: any bytes give the right array or a ValueError
// that says what is wrong with them, and no more memory than the file's size and 16 MiB is taken.
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
// Writes version 1.0 in C order through a temporary file beside it. bf16 is written as '<V2', as
// ml_dtypes does. A sharded array is written block by block.
void save_npy(const std::string& path, const Array& x);

}  // namespace shmap
