// RepeatableCall: keeps processes in step, or lets them notice that they are not, where memory runs
// out in the middle of a call.
//
// A program may catch OutOfMemory, free memory and repeat the call: a body outside of jit, a
// function under jit, an operation on global arrays. Where collectives of the call had been sent
// by then, the second try sends them again. If memory ran out in this process alone, the other
// processes are in their next call by then, and would take the data of the second try for that of
// their next call. So an OutOfMemory that leaves a call behind a collective takes one more number
// of the mesh, and tells the other processes that this process leaves the number out. Processes
// that all had the same failure all leave it out, and are in step afterwards. For a process that
// had no failure the number is that of its next collective, and that is a failure of the job.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>

#include "core/array/mesh_impl.h"
#include "core/processes/processes.h"
#include "shmap/error.h"

namespace shmap {

// Notes on this thread which numbers are taken while the object lives.
class RepeatableCall {
 public:
  RepeatableCall() noexcept;
  ~RepeatableCall();
  RepeatableCall(const RepeatableCall&) = delete;
  RepeatableCall& operator=(const RepeatableCall&) = delete;

  // Memory has run out in the call, and the caller of the call is about to learn of it.
  void ran_out(const char* why) noexcept;

 private:
  const std::size_t begin_, outer_;
};

// For take_numbers and give_numbers_back (core/runtime/collective_numbers.h). Before numbers are
// taken; returns where to write the first of them, or null where this need not be known.
std::uint64_t* note_taking(const detail::MeshImpl& mesh, std::uint64_t way);
void note_given_back(const detail::MeshImpl& mesh, std::uint64_t way, std::uint64_t first) noexcept;

// Calls run(), which a program may repeat as a whole.
template <class Run>
auto run_repeatable(const Run& run) {
  if (Processes::joined() == nullptr) return run();
  RepeatableCall call;
  try {
    return run();
  } catch (const OutOfMemory& e) {
    call.ran_out(e.what());
    throw;
  } catch (const std::bad_alloc& e) {
    call.ran_out(e.what());
    throw;
  }
}

}  // namespace shmap
