// Files of arrays. The contents of a file are not trusted: any bytes give either the right arrays
// or a ValueError that says what is wrong with them, and reading takes at most the file's size plus
// 16 MiB of memory. Every error names the file and the caller's line; OutOfMemory is thrown where
// the file is larger than the memory. Error is thrown where a file becomes shorter while it is
// read, and where the disk is full.
//
// Saving is atomic. After a save has returned, the file survives a loss of power; before that, the
// path names the old file or no file. The data is written under a random name in the same folder,
// ".shmap-….draft", and renamed to the path at the end. A process that is killed while it saves
// leaves its draft in the folder; the next save into the folder removes drafts that are older than
// a minute. The permissions of the old file are kept, and symbolic links are followed. A sharded
// array is written block by block, directly from device memory where the host can address it,
// otherwise through buffers of 4 MiB: the array is never copied as a whole.
//
// All calls block until they are done. Checkpoints of trees of arrays: shmap/saved_checkpoint.h.
//
// For arrays that are spread over several processes, save_npy and save_safetensors are collectives
// of these processes: each writes its own blocks, as in save_checkpoint. save_npz of such an array
// is a ValueError.
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
  // Called on the thread that reads or writes: at the beginning, about every 16 MiB, and at the
  // end, with the bytes done so far and the bytes in total. An exception that it throws ends the
  // call and propagates from it.
  std::function<void(std::int64_t bytes, std::int64_t total)> progress = {};
};

// ---- .npy: NumPy's format, versions 1 to 3, C and Fortran order, either byte order
// Loads the array onto the default device.
Array load_npy(const std::string& path, SourceLine source = SourceLine::current());
// Loads the array with the given sharding. For each memory space only the bytes of its own blocks
// are read.
Array load_npy(const std::string& path, const NamedSharding& sharding, FileOptions options = {},
               SourceLine source = SourceLine::current());
// Writes version 1.0 in C order. bf16 is written as '<V2', as ml_dtypes writes it.
void save_npy(const std::string& path, const Array& x, FileOptions options = {},
              SourceLine source = SourceLine::current());

// ---- .npz
// An .npz file is a zip archive of .npy files, stored as numpy.savez (and save_npz) writes them, or
// deflated as numpy.savez_compressed writes them. A deflated member is inflated up to the size that
// the archive declares.
//
// load_npz returns the arrays by their names, without ".npy". Arrays named in `shardings` get that
// sharding, the others are loaded onto the default device. ValueError where `shardings` names an
// array that the file does not have. Arrays that are read whole or inflated are checked against the
// archive's CRC-32; other sharded arrays are not, since for each memory space only its own blocks
// are read.
std::map<std::string, Array> load_npz(const std::string& path,
                                      const std::map<std::string, NamedSharding>& shardings = {},
                                      FileOptions options = {},
                                      SourceLine source = SourceLine::current());
void save_npz(const std::string& path, const std::map<std::string, Array>& arrays,
              FileOptions options = {}, SourceLine source = SourceLine::current());

// ---- safetensors
// load_safetensors returns all tensors of the file by their names; `shardings` has the same meaning
// as in load_npz. ValueError for a header of more than 16 MiB, for a dtype that arrays do not have
// (8-bit floats), and for everything that the format forbids: holes, overlaps, keys given twice.
std::map<std::string, Array> load_safetensors(
    const std::string& path, const std::map<std::string, NamedSharding>& shardings = {},
    FileOptions options = {}, SourceLine source = SourceLine::current());
void save_safetensors(const std::string& path, const std::map<std::string, Array>& arrays,
                      FileOptions options = {}, SourceLine source = SourceLine::current());

// ---- arrays over memory of the user
namespace detail {
Array from_memory(DType dtype, const void* data, std::int64_t count, const Shape& shape,
                  std::function<void()> release, SourceLine source);
}
// An uncommitted array on the default device over row-major memory of the user. The memory is not
// copied where that device can address it and it is aligned for its elements; otherwise it is
// copied at once. The user must keep the memory unchanged until the library calls `release`: once,
// on any thread, after the last array (or task) that uses the memory is done with it. `release`
// should not throw. The library never writes to the memory, also not where the array is donated.
// Where from_memory throws, `release` is not called. ValueError where the number of values is not
// the number of elements of the shape, and where `release` is empty (for memory that lives as long
// as the process, pass [] {}).
template <Element T>
Array from_memory(std::span<const T> values, Shape shape, std::function<void()> release,
                  SourceLine source = SourceLine::current()) {
  return detail::from_memory(dtype_of<T>, values.data(), static_cast<std::int64_t>(values.size()),
                             shape, std::move(release), source);
}
// from_memory of an rvalue vector, which the array then owns.
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
