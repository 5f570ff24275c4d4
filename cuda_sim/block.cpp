#include "block.h"

#include <algorithm>
#include <memory>

#include "access_guard.h"
#include "cuda_sim.h"
#include "fiber.h"
#include "runtime.h"
#include "sim_device.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace shmap_sim {
namespace {

enum class Wait : std::uint8_t { none, barrier, shuffle, vote, warp, ended };

const char* name_of(Wait wait) {
  switch (wait) {
    case Wait::barrier:
      return "a barrier";
    case Wait::shuffle:
      return "a shuffle";
    case Wait::vote:
      return "a vote";
    case Wait::warp:
      return "__syncwarp";
    case Wait::ended:
      return "its end";
    case Wait::none:
      break;
  }
  return "nothing";
}

// A thread of the block that waits at a barrier or for lanes.
struct Thread {
  Wait wait = Wait::none;
  Fiber* fiber = nullptr;  // null: not started, or ended without waiting
  unsigned mask = 0;
  int source = 0;
  bool predicate = false;
  std::uint64_t value = 0;
  std::uint64_t result = 0;
  bool synchronized = false;  // with the kernels before this one
};

class Block {
 public:
  cudaError_t run(const std::string& name, const void* function, const KernelType& type,
                  const LaunchShape& shape, void* const* args);
  std::uint64_t wait(Wait kind, unsigned mask, std::uint64_t value, int source, bool predicate);
  unsigned lanes_of_this_warp() const;
  std::string thread() const;  // the running thread, as text
  unsigned char* dynamic_shared() { return shared_; }
  void synchronize() { threads_[current_].synchronized = true; }
  [[noreturn]] void fail(const char* what, cudaError_t error);  // fails the launch because of the
                                                                // running thread

 private:
  static void enter(void* self) { static_cast<Block*>(self)->run_threads(); }
  void run_threads();
  bool run_block();
  void make_shared(std::size_t bytes);
  bool wrote_beyond_shared() const;
  bool release_barrier();
  bool release_warp(int warp);
  void resume(int thread);
  unsigned thread_at(unsigned i) const { return backwards_ ? n_ - 1 - i : i; }
  void place(int thread);
  Fiber* take_fiber();
  std::string who_waits() const;

  const void* function_ = nullptr;
  const KernelType* type_ = nullptr;
  void* const* args_ = nullptr;
  unsigned n_ = 0;     // number of threads in a block
  unsigned next_ = 0;  // the next thread to start
  unsigned waiting_ = 0;
  bool backwards_ = false;
  bool failed_ = false;
  bool dependent_ = false;
  cudaError_t error_ = cudaSuccess;
  std::string why_;
  int current_ = 0;
  Fiber* fiber_ = nullptr;  // the running fiber
  std::vector<Thread> threads_;
  std::vector<uint3> indices_;                  // threadIdx of each thread
  std::vector<int> at_warp_op_;                 // for each warp: its threads that wait for lanes
  std::vector<std::unique_ptr<Fiber>> fibers_;  // all fibers
  std::vector<Fiber*> free_;
  std::vector<unsigned char> shared_bytes_;
  unsigned char* shared_ = nullptr;  // dynamic shared memory, followed by a guard zone
  std::size_t shared_size_ = 0;
};

constexpr std::size_t kSharedAlign = 1024, kSharedGuard = 256;
constexpr unsigned char kSharedFill = 0xa5;

// One in the process, since kernels run one at a time.
Block& block() {
  static Block* const only = new Block;
  return *only;
}

void Block::place(int thread) {
  current_ = thread;
  threadIdx = indices_[thread];
}

Fiber* Block::take_fiber() {
  if (free_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>());
    free_.push_back(fibers_.back().get());
  }
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

// The body of each fiber: starts threads until one of them waits. When that thread has ended, the
// fiber continues with threads that have not been started meanwhile.
void Block::run_threads() {
  Fiber* const own = fiber_;
  while (next_ < n_) {
    const int thread = static_cast<int>(thread_at(next_++));
    place(thread);
    type_->invoke(function_, args_);
    if (dependent_ && !threads_[current_].synchronized)
      fail(" ended without cudaGridDependencySynchronize, in a dependent launch",
           cudaErrorLaunchFailure);
    threads_[current_].wait = Wait::ended;
  }
  free_.push_back(own);
  own->suspend();
}

void Block::resume(int thread) {
  Thread& t = threads_[thread];
  --waiting_;
  if (t.wait != Wait::barrier) --at_warp_op_[thread / 32];
  t.wait = Wait::none;
  place(thread);
  fiber_ = t.fiber;
  t.fiber->resume();
}

std::uint64_t Block::wait(Wait kind, unsigned mask, std::uint64_t value, int source,
                          bool predicate) {
  const int thread = current_;
  Thread& t = threads_[thread];
  t.wait = kind;
  t.mask = mask;
  t.value = value;
  t.source = source;
  t.predicate = predicate;
  t.fiber = fiber_;
  ++waiting_;
  if (kind != Wait::barrier) ++at_warp_op_[thread / 32];
  fiber_->suspend();
  return threads_[thread].result;
}

void Block::fail(const char* what, cudaError_t error) {
  failed_ = true;
  error_ = error;
  why_ = thread() + what;
  fiber_->suspend();
  __builtin_unreachable();
}

unsigned Block::lanes_of_this_warp() const {
  const unsigned first = static_cast<unsigned>(current_) & ~31u;
  return n_ - first >= 32 ? 0xffffffffu : (1u << (n_ - first)) - 1;
}

std::string Block::thread() const {
  return "thread " + std::to_string(current_) + " of block (" + std::to_string(blockIdx.x) + ", " +
         std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z) + ")";
}

bool Block::release_barrier() {
  int count = 0;
  for (const Thread& t : threads_) {
    if (t.wait != Wait::barrier) return false;
    count += t.predicate ? 1 : 0;
  }
  for (Thread& t : threads_) t.result = static_cast<std::uint64_t>(count);
  for (unsigned i = 0; i < n_ && !failed_; ++i) resume(static_cast<int>(thread_at(i)));
  return true;
}

// Releases the lanes of a mask once all of them have reached the same operation.
bool Block::release_warp(int warp) {
  const unsigned first = static_cast<unsigned>(warp) * 32;
  const unsigned lanes = std::min(32u, n_ - first);
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const Thread& t = threads_[first + lane];
    if (t.wait != Wait::shuffle && t.wait != Wait::vote && t.wait != Wait::warp) continue;
    unsigned ballot = 0;
    bool complete = (t.mask >> lane & 1) != 0;
    for (unsigned i = 0; i < 32 && complete; ++i) {
      if ((t.mask >> i & 1) == 0) continue;
      complete =
          i < lanes && threads_[first + i].wait == t.wait && threads_[first + i].mask == t.mask;
      if (complete && threads_[first + i].predicate) ballot |= 1u << i;
    }
    if (!complete) continue;
    const unsigned mask = t.mask;
    const Wait kind = t.wait;
    for (unsigned i = 0; i < lanes; ++i) {
      if ((mask >> i & 1) == 0) continue;
      Thread& own = threads_[first + i];
      own.result = ballot;
      if (kind != Wait::shuffle) continue;
      if (own.source < 0 || own.source >= 32 || (mask >> own.source & 1) == 0) {
        failed_ = true;
        why_ = "lane " + std::to_string(i) + " shuffles with lane " + std::to_string(own.source) +
               ", which is not in the mask";
        return true;
      }
      own.result = threads_[first + static_cast<unsigned>(own.source)].value;
    }
    for (unsigned i = 0; i < lanes && !failed_; ++i) {
      const unsigned at = backwards_ ? lanes - 1 - i : i;
      if ((mask >> at & 1) != 0) resume(static_cast<int>(first + at));
    }
    return true;
  }
  return false;
}

std::string Block::who_waits() const {
  std::string text = "block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) +
                     ", " + std::to_string(blockIdx.z) + "): ";
  unsigned counts[6] = {};
  for (const Thread& t : threads_) ++counts[static_cast<int>(t.wait)];
  for (const Wait wait : {Wait::barrier, Wait::shuffle, Wait::vote, Wait::warp, Wait::ended}) {
    if (counts[static_cast<int>(wait)] == 0) continue;
    text += std::to_string(counts[static_cast<int>(wait)]) + " of " + std::to_string(n_) +
            " threads came to " + name_of(wait) + "; ";
  }
  return text + "nobody can go on";
}

// Runs the threads of the block at blockIdx. False where the block failed.
bool Block::run_block() {
  next_ = 0;
  waiting_ = 0;
  for (Thread& t : threads_) {
    t.wait = Wait::none;
    t.synchronized = false;
  }
  while (next_ < n_ && !failed_) {
    fiber_ = take_fiber();
    fiber_->start(&enter, this);
    fiber_->resume();
  }
  const int warps = static_cast<int>((n_ + 31) / 32);
  while (waiting_ > 0 && !failed_) {
    bool moved = false;
    for (int warp = 0; warp < warps && !failed_; ++warp) {
      while (!failed_ && at_warp_op_[warp] > 0 && release_warp(warp)) moved = true;
    }
    if (!failed_ && waiting_ == n_ && release_barrier()) moved = true;
    if (!moved) {
      failed_ = true;
      why_ = who_waits();
    }
  }
  return !failed_;
}

void Block::make_shared(std::size_t bytes) {
  shared_size_ = bytes;
  shared_bytes_.assign(bytes + kSharedGuard + kSharedAlign, kSharedFill);
  const auto at = reinterpret_cast<std::uintptr_t>(shared_bytes_.data());
  shared_ = shared_bytes_.data() + (kSharedAlign - at % kSharedAlign) % kSharedAlign;
}

bool Block::wrote_beyond_shared() const {
  const unsigned char* const guard = shared_ + shared_size_;
  return std::any_of(guard, guard + kSharedGuard, [](unsigned char c) { return c != kSharedFill; });
}

cudaError_t Block::run(const std::string& name, const void* function, const KernelType& type,
                       const LaunchShape& shape, void* const* args) {
  function_ = function;
  type_ = &type;
  args_ = args;
  failed_ = false;
  dependent_ = shape.dependent;
  error_ = cudaErrorLaunchFailure;
  blockDim = shape.block;
  gridDim = shape.grid;
  n_ = shape.block.x * shape.block.y * shape.block.z;
  backwards_ = (shape.order & 1) != 0;
  threads_.assign(n_, Thread{});
  make_shared(shape.dynamic_shared);
  at_warp_op_.assign((n_ + 31) / 32, 0);
  indices_.clear();
  for (unsigned t = 0; t < n_; ++t) {
    indices_.push_back(
        {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)});
  }
  const std::uint64_t blocks =
      static_cast<std::uint64_t>(shape.grid.x) * shape.grid.y * shape.grid.z;
  const bool from_end = (shape.order & 2) != 0;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t b = from_end ? blocks - 1 - i : i;
    blockIdx.x = static_cast<unsigned>(b % shape.grid.x);
    blockIdx.y = static_cast<unsigned>(b / shape.grid.x % shape.grid.y);
    blockIdx.z = static_cast<unsigned>(b / shape.grid.x / shape.grid.y);
    if (run_block()) {
      if (!wrote_beyond_shared()) continue;
      why_ = "block " + std::to_string(b) + " wrote beyond its dynamic shared memory of " +
             std::to_string(shared_size_) + " bytes";
      error_ = cudaErrorIllegalAddress;
    }
    complain("kernel '" + name + "': " + why_);
    free_.clear();  // abandons the fibers of threads that still wait
    for (const auto& fiber : fibers_) free_.push_back(fiber.get());
    return error_;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t run_kernel(const std::string& name, const void* function, const KernelType& type,
                       const LaunchShape& shape, void* const* args) {
  const AccessGuard guard(
      [] { block().fail(" touches memory that it can't reach", cudaErrorIllegalAddress); });
  return block().run(name, function, type, shape, args);
}

int barrier(int votes, bool predicate) {
  const std::uint64_t count = block().wait(Wait::barrier, 0, 0, 0, predicate);
  return votes != 0 ? static_cast<int>(count) : 0;
}

std::uint64_t shuffle(unsigned mask, std::uint64_t value, int source_lane) {
  return block().wait(Wait::shuffle, mask, value, source_lane, false);
}

unsigned vote(unsigned mask, bool predicate) {
  return static_cast<unsigned>(block().wait(Wait::vote, mask, 0, 0, predicate));
}

void sync_warp(unsigned mask) { block().wait(Wait::warp, mask, 0, 0, false); }

void* dynamic_shared() { return block().dynamic_shared(); }

unsigned active_lanes() { return block().lanes_of_this_warp(); }

void grid_dependency() { block().synchronize(); }
void trap() { block().fail(" trapped", cudaErrorLaunchFailure); }

}  // namespace shmap_sim
