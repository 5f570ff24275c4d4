// Files of arrays. What a file holds is not trusted: any bytes give the right array or a ValueError
// that says what is wrong with them, and no more memory than the file's size and 16 MiB is taken.
// Every error names the file and the caller's line; OutOfMemory is one where the file is larger
// than the memory. A file that becomes shorter while it is read, and a disk that is full, are
// Errors.
//
// Saving is atomic. Once a call returns, the file survives a loss of power; until then its path has
// the old file or none. It is written under a random name in the same folder, ".shmap-….draft",
// which takes the path's place at the end. A process that is killed meanwhile leaves that draft
// behind: it is in nobody's way, and the next save into the folder removes it once it is a minute
// old. The old file's permissions are kept, and links are followed. A sharded array is written
// block by block, and from where it lies: no copy of it is made, but for pieces of 4 MiB of memory
// that the host cannot address.
//
// All calls block until they are done. Checkpoints of whole trees: shmap/saved_checkpoint.h.
//
// save_npy and save_safetensors of arrays that lie in several processes are collectives of these:
// each writes its own blocks, as of save_checkpoint. save_npz of such an array is a ValueError.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "shmap/array.h"
#include "shmap/half.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"

namespace shmap {

struct FileOptions {
  // Called on the thread that reads or writes: at the beginning, every 16 MiB or so, and at the
  // end, with the bytes done and those to do. What it throws ends the call and comes out of it.
  std::function<void(std::int64_t bytes, std::int64_t total)> progress = {};
};

// ---- .npy: NumPy's format, versions 1 to 3, C and Fortran order, either byte order
// On the default device.
Array load_npy(const std::string& path, SourceLine source = SourceLine::current());
// Sharded: each memory space reads the bytes of its own blocks and no others.
Array load_npy(const std::string& path, const NamedSharding& sharding, FileOptions options = {},
               SourceLine source = SourceLine::current());
// Writes version 1.0 in C order. bf16 is written as '<V2', as ml_dtypes does.
void save_npy(const std::string& path, const Array& x, FileOptions options = {},
              SourceLine source = SourceLine::current());

// ---- .npz: .npy files in a zip archive, as NumPy's savez (which save_npz does too) and
// savez_compressed write them: inflated where they are deflated, up to what the archive says.
// By their names, without ".npy". Those that `shardings` names are sharded, the others come onto
// the default device. ValueError for a name that the file has not. Arrays read whole or inflated
// are held against the CRC-32; of other sharded ones each memory space reads its own blocks alone.
std::map<std::string, Array> load_npz(const std::string& path,
                                      const std::map<std::string, NamedSharding>& shardings = {},
                                      FileOptions options = {},
                                      SourceLine source = SourceLine::current());
void save_npz(const std::string& path, const std::map<std::string, Array>& arrays,
              FileOptions options = {}, SourceLine source = SourceLine::current());

// ---- safetensors
// All tensors of the file, as load_npz. Headers of more than 16 MiB and dtypes that arrays have not
// (floats of 8 bits) are ValueErrors, and so is what the format forbids: holes, overlaps, keys
// given twice.
std::map<std::string, Array> load_safetensors(
    const std::string& path, const std::map<std::string, NamedSharding>& shardings = {},
    FileOptions options = {}, SourceLine source = SourceLine::current());
void save_safetensors(const std::string& path, const std::map<std::string, Array>& arrays,
                      FileOptions options = {}, SourceLine source = SourceLine::current());

// ---- a user's memory
namespace detail {
Array from_memory(DType dtype, const void* data, std::int64_t count, const Shape& shape,
                  std::function<void()> release, SourceLine source);
}
// An uncommitted array on the default device over row-major memory of the user's, without a copy
// where that device can address it and it is aligned to its elements; else copied at once. The
// memory must stay as it is until `release` is called: when the last array (or task) that uses it
// is done with it, on any thread; it should not throw. Nothing is ever written to it, a donated
// array's neither. Where the call throws, it is not called. ValueError where the count does not
// fill the shape, or without a `release`: memory that lives as long as the process has [] {}.
template <Element T>
Array from_memory(std::span<const T> values, Shape shape, std::function<void()> release,
                  SourceLine source = SourceLine::current()) {
  return detail::from_memory(dtype_of<T>, values.data(), static_cast<std::int64_t>(values.size()),
                             shape, std::move(release), source);
}
// A vector that is given up: it lives as long as the array needs it.
template <Element T>
requires(!std::same_as<T, bool>) Array
    from_memory(std::vector<T>&& values, Shape shape, SourceLine source = SourceLine::current()) {
  auto* const owner = new std::vector<T>(std::move(values));
  try {
    return from_memory(
        std::span<const T>(*owner), std::move(shape), [owner] { delete owner; }, source);
  } catch (...) {
    delete owner;
    throw;
  }
}

}  // namespace shmap
