// Arrays to and from files, block by block: each memory space reads the blocks of its own devices,
// once, to where they will stay, and a sharded array's blocks are written from where they lie, each
// once.
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

// Counts bytes for the user's callback, if there is one. What that throws ends the work.
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

// Gives the elements of `box` of the whole array to host memory, row-major.
using ReadBox = std::function<void(std::span<const Slice> box, void* dst)>;
// Takes them from there.
using WriteBox = std::function<void(std::span<const Slice> box, const void* src)>;

// `what` names the file in errors. `in_pieces`: whether parts of a block that are contiguous in it
// may be read one by one.
Array read_blocks(const ShapedArray& type, const Sharding* sharding, bool committed,
                  const std::string& what, bool in_pieces, ProgressCount& progress,
                  const ReadBox& read);
// The bytes that it reads: those of each block once a memory space.
std::int64_t bytes_to_read(const ShapedArray& type, const Sharding* sharding);
// Waits for the array. TypeError for a value that is none yet, ValueError where parts of it lie in
// another process; `what` is the function's name.
void write_blocks(const Array& x, const char* what, ProgressCount& progress, const WriteBox& write);
// The same of an array that several processes have: of the blocks that are here, those that no
// process before this one has, in mesh order. So each block is written once by all of them.
void write_own_blocks(const Array& x, const char* what, ProgressCount& progress,
                      const WriteBox& write);
// The bytes that it writes.
std::int64_t own_bytes(const Array& x, const char* what);
// Whether parts of it lie on devices of other processes.
bool spans_processes(const Node& node);

std::vector<Slice> whole_box(const Shape& shape);

// The errors of `f`, with the caller's line.
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
