// Reads and writes arrays block by block. Each memory space reads every block of its devices once,
// directly into the block's buffer; each block of a sharded array is written once, directly from
// its buffer.
#pragma once
#include <functional>
#include <new>
#include <span>
#include <string>

#include "core/array/sharding.h"
#include "core/ir/trace.h"
#include "shmap/error.h"
#include "shmap/io.h"

namespace shmap::io {

// Counts bytes for the user's callback, if there is one. An exception of the callback propagates.
class ProgressCount {
 public:
  ProgressCount(const FileOptions& options, std::int64_t total)
      : progress_(options.progress), total_(total) {
    add(0);
  }
  bool wanted() const { return static_cast<bool>(progress_); }
  void add(std::int64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

 private:
  const std::function<void(std::int64_t, std::int64_t)>& progress_;
  std::int64_t done_ = 0, total_;
};

// Reads the elements of `box`, a part of the whole array, into host memory, row-major.
using ReadBox = std::function<void(std::span<const Slice> box, void* dst)>;
// Writes the elements of `box` from host memory, where they are row-major.
using WriteBox = std::function<void(std::span<const Slice> box, const void* src)>;

// Reads an array. `what` names the file in errors. `in_pieces`: contiguous pieces of a block may be
// read one by one.
Array read_blocks(const ShapedArray& type, const Sharding* sharding, bool committed,
                  const std::string& what, bool in_pieces, ProgressCount& progress,
                  const ReadBox& read);
// The number of bytes that read_blocks reads: each block once per memory space.
std::int64_t bytes_to_read(const ShapedArray& type, const Sharding* sharding);
// Waits for the array. TypeError for a value that is not computed (traced), ValueError if other
// processes have some of its blocks; `what` is the public function's name.
void write_blocks(const Array& x, const char* what, ProgressCount& progress, const WriteBox& write);
// write_blocks for an array that several processes have: writes the blocks of this process that no
// earlier process has, in mesh order. All processes together write each block once.
void write_own_blocks(const Array& x, const char* what, ProgressCount& progress,
                      const WriteBox& write);
// The number of bytes that write_own_blocks writes.
std::int64_t own_bytes(const Array& x, const char* what);
// True if devices of other processes have some of the array's blocks.
bool spans_processes(const Node& node);

std::vector<Slice> whole_box(const Shape& shape);

// Adds the caller's line and the file to the errors of `f`.
template <class F>
auto with_line(const char* what, const std::string& path, SourceLine source, F f) -> decltype(f()) {
  const auto text = [&](const Error& e) {
    const std::string given = e.what();
    return given.find("\n  at ") != given.npos ? given : given + at_line(source);
  };
  const auto where = [&] { return "\n  in " + std::string(what) + " of '" + path + "'"; };
  try {
    return f();
  } catch (const ValueError& e) {
    throw ValueError(text(e));
  } catch (const TypeError& e) {
    throw TypeError(text(e));
  } catch (const DeviceError& e) {
    throw DeviceError(text(e));
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(text(OutOfMemory(e.what() + where())));
  } catch (const CollectiveError& e) {
    throw CollectiveError(text(e));
  } catch (const Error& e) {
    throw Error(text(e));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("out of memory on the host" + where() + at_line(source));
  }
}

}  // namespace shmap::io
