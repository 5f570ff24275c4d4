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
// What the calls have taken that this thread is in: the entries of the innermost call are behind
// those of the calls around it, and begin at `begin`. Outside of all calls nothing is noted.
struct Taking {
  static constexpr std::size_t kNoCall = ~std::size_t{0};
  std::vector<Taken> entries;
  std::size_t begin = kNoCall;

  static Taking& here() {
    static thread_local Taking taking;
    return taking;
  }
  Taken* find(std::size_t from, std::size_t to, const detail::MeshImpl& mesh, std::uint64_t way) {
    for (std::size_t i = from; i < to; ++i)
      if (entries[i].mesh == &mesh && entries[i].way == way) return &entries[i];
    return nullptr;
  }
};

}  // namespace

RepeatableCall::RepeatableCall() noexcept
    : begin_(Taking::here().entries.size()), outer_(std::exchange(Taking::here().begin, begin_)) {}

// What this call has taken, the call around it has taken too.
RepeatableCall::~RepeatableCall() {
  Taking& taking = Taking::here();
  std::size_t kept = begin_;
  if (outer_ != Taking::kNoCall) {
    for (std::size_t i = begin_; i < taking.entries.size(); ++i) {
      const Taken taken = taking.entries[i];
      if (taking.find(outer_, begin_, *taken.mesh, taken.way) == nullptr)
        taking.entries[kept++] = taken;
    }
  }
  taking.entries.resize(kept);
  taking.begin = outer_;
}

void RepeatableCall::ran_out(const char* why) noexcept {
  Taking& taking = Taking::here();
  Processes& job = *Processes::joined();
  for (std::size_t i = begin_; i < taking.entries.size(); ++i) {
    const Taken& taken = taking.entries[i];
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
  Taking& taking = Taking::here();
  if (taking.begin == Taking::kNoCall) return nullptr;
  if (taking.find(taking.begin, taking.entries.size(), mesh, way) != nullptr) return nullptr;
  return &taking.entries.emplace_back(Taken{&mesh, way, 0}).first;
}

void note_given_back(const detail::MeshImpl& mesh, std::uint64_t way,
                     std::uint64_t first) noexcept {
  Taking& taking = Taking::here();
  if (taking.begin == Taking::kNoCall) return;
  const Taken* const taken = taking.find(taking.begin, taking.entries.size(), mesh, way);
  if (taken != nullptr && taken->first == first)
    taking.entries.erase(taking.entries.begin() + (taken - taking.entries.data()));
}

}  // namespace shmap
