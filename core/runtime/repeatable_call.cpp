#include "core/runtime/repeatable_call.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/processes/exchanges.h"
#include "core/runtime/collective_numbers.h"

namespace shmap {
namespace {

// A sequence of numbers, of which a call of this thread has taken some: `first` and later ones.
struct Taken {
  const detail::MeshImpl* mesh = nullptr;
  std::uint64_t way = 0, first = 0;
};
// The calls that this thread is in: the entries of the innermost one are behind those of the calls
// around it, and begin at `begin`. Outside of all calls nothing is noted.
constexpr std::size_t kNoCall = ~std::size_t{0};
struct Calls {
  std::size_t begin = kNoCall, end = 0;
};
// Apart from the entries, because most calls take no numbers, and a vector must be destroyed.
constinit thread_local Calls calls_here;
std::vector<Taken>& taken_numbers() {
  static thread_local std::vector<Taken> all;
  return all;
}

Taken* find_taken(std::size_t from, std::size_t to, const detail::MeshImpl& mesh,
                  std::uint64_t way) {
  std::vector<Taken>& all = taken_numbers();
  for (std::size_t i = from; i < to; ++i)
    if (all[i].mesh == &mesh && all[i].way == way) return &all[i];
  return nullptr;
}

}  // namespace

RepeatableCall::RepeatableCall() noexcept
    : begin_(calls_here.end), outer_(std::exchange(calls_here.begin, begin_)) {}

// What this call has taken, the call around it has taken too.
RepeatableCall::~RepeatableCall() {
  Calls& here = calls_here;
  here.begin = outer_;
  if (here.end == begin_) return;
  std::vector<Taken>& all = taken_numbers();
  std::size_t kept = begin_;
  for (std::size_t i = begin_; i < here.end && outer_ != kNoCall; ++i) {
    const Taken taken = all[i];
    if (find_taken(outer_, begin_, *taken.mesh, taken.way) == nullptr) all[kept++] = taken;
  }
  all.resize(kept);
  here.end = kept;
}

void RepeatableCall::ran_out(const char* why) noexcept {
  Processes& job = *Processes::joined();
  for (std::size_t i = begin_; i < calls_here.end; ++i) {
    const Taken taken = taken_numbers()[i];
    const detail::MeshImpl& mesh = *taken.mesh;
    try {
      std::vector<int> others = mesh.processes();
      std::erase(others, job.rank());
      std::uint64_t number = 0;
      {
        std::lock_guard lock(mesh.backend().submit_mutex());
        number = take_numbers(mesh, taken.way, 1);
      }
      job.exchanges().leave_out(number_space(mesh, taken.way), number, others, why);
    } catch (...) {  // no memory to say so by a message of its own
      job.exchanges().report("a process ran out of memory, and cannot say in which collective");
    }
  }
}

std::uint64_t* note_taking(const detail::MeshImpl& mesh, std::uint64_t way) {
  Calls& here = calls_here;
  if (here.begin == kNoCall || find_taken(here.begin, here.end, mesh, way) != nullptr)
    return nullptr;
  Taken& taken = taken_numbers().emplace_back(Taken{&mesh, way, 0});
  ++here.end;
  return &taken.first;
}

void note_given_back(const detail::MeshImpl& mesh, std::uint64_t way,
                     std::uint64_t first) noexcept {
  Calls& here = calls_here;
  if (here.begin == kNoCall) return;
  const Taken* const taken = find_taken(here.begin, here.end, mesh, way);
  if (taken == nullptr || taken->first != first) return;
  taken_numbers().erase(taken_numbers().begin() + (taken - taken_numbers().data()));
  --here.end;
}

}  // namespace shmap
