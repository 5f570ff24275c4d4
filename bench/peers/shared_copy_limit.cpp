// shared_copy_limit: how fast two processes, each bound to a core, can do the least work of a
// gather: each process copies a block of its own and one of the other process into a result. The
// variants differ in how the other's block is read and how the result is written; in all of them
// both processes start a call together, as in a collective. Uses no code of the library.
//
//   shared_copy_limit [bytes of a block: 2 MiB] [calls: 2000] [rounds: 5]
#include <emmintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Memory that both processes share.
struct Shared {
  std::atomic<int> arrived{0};
  std::atomic<std::uint64_t> block[2];
  std::atomic<int> pid[2];
  std::atomic<double> us[2];
};

void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

std::byte* map(std::size_t bytes, int flags, int file) {
  void* p = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, flags, file, 0);
  if (p == MAP_FAILED) fail("mmap");
  const auto at = (reinterpret_cast<std::uintptr_t>(p) + kHugePage - 1) / kHugePage * kHugePage;
  return reinterpret_cast<std::byte*>(at);
}

// Private memory of a process, in huge pages if the system has them.
std::byte* own_memory(std::size_t bytes) {
  std::byte* p = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  madvise(p, bytes, MADV_HUGEPAGE);
  std::memset(p, 1, bytes);
  return p;
}

void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) {
    const auto* f = reinterpret_cast<const __m128i*>(from + i);
    auto* t = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_load_si128(f), b = _mm_load_si128(f + 1), c = _mm_load_si128(f + 2),
                  d = _mm_load_si128(f + 3);
    _mm_stream_si128(t, a);
    _mm_stream_si128(t + 1, b);
    _mm_stream_si128(t + 2, c);
    _mm_stream_si128(t + 3, d);
  }
  _mm_sfence();
}

// The processes wait for each other; `turn` counts from 1.
void meet(Shared& shared, int turn) {
  shared.arrived.fetch_add(1);
  while (shared.arrived.load(std::memory_order_acquire) < 2 * turn) __builtin_ia32_pause();
}

enum class Way { own, mapped, mapped_past_caches, system_call };
constexpr const char* kNames[] = {
    "both blocks of its own, memcpy", "the other's mapped (memfd), memcpy",
    "the other's mapped, stores past the caches", "the other's by process_vm_readv"};

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, long otherwise) {
    return argc > i ? std::atol(argv[i]) : otherwise;
  };
  const auto bytes = static_cast<std::size_t>(number(1, 2 << 20)) / 64 * 64;
  const int calls = static_cast<int>(number(2, 2000)), rounds = static_cast<int>(number(3, 5));
  if (bytes == 0 || calls <= 0 || rounds <= 0) {
    std::fprintf(stderr, "shared_copy_limit [bytes of a block] [calls] [rounds]\n");
    return 2;
  }
  auto& shared = *new (map(sizeof(Shared), MAP_SHARED | MAP_ANONYMOUS, -1)) Shared;
  std::byte* files[2];
  for (std::byte*& file : files) {
    const int fd = memfd_create("shared_copy_limit", 0);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes + kHugePage)) != 0) fail("memfd");
    file = map(bytes, MAP_SHARED, fd);
    madvise(file, bytes, MADV_HUGEPAGE);
    std::memset(file, 1, bytes);
  }
  const pid_t child = fork();
  if (child < 0) fail("fork");
  const int self = child == 0 ? 1 : 0, other = 1 - self;
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(static_cast<unsigned>(self), &core);
  if (sched_setaffinity(0, sizeof core, &core) != 0) fail("sched_setaffinity (two cores?)");
  std::byte *const block = own_memory(bytes), *const second = own_memory(bytes),
                   *const result = own_memory(2 * bytes);
  shared.block[self] = reinterpret_cast<std::uint64_t>(block);
  shared.pid[self] = getpid();
  int turn = 0;
  meet(shared, ++turn);
  const auto call = [&](Way way) {
    std::byte *const mine = result + static_cast<std::size_t>(self) * bytes,
                     *const theirs = result + static_cast<std::size_t>(other) * bytes;
    const bool past = way == Way::mapped_past_caches;
    const auto copy = [past](std::byte* to, const std::byte* from, std::size_t n) {
      if (past)
        copy_past_caches(to, from, n);
      else
        std::memcpy(to, from, n);
    };
    copy(mine, way == Way::own || way == Way::system_call ? block : files[self], bytes);
    if (way != Way::system_call)
      return copy(theirs, way == Way::own ? second : files[other], bytes);
    const iovec here{theirs, bytes};
    const iovec there{reinterpret_cast<void*>(shared.block[other].load()), bytes};
    if (process_vm_readv(shared.pid[other], &here, 1, &there, 1, 0) != static_cast<ssize_t>(bytes))
      fail("process_vm_readv");
  };
  for (const Way way : {Way::own, Way::mapped, Way::mapped_past_caches, Way::system_call}) {
    std::vector<double> times;
    for (int round = -1; round < rounds; ++round) {  // the first one warms up
      meet(shared, ++turn);
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) {
        meet(shared, ++turn);
        call(way);
      }
      meet(shared, ++turn);
      const std::chrono::duration<double, std::micro> taken =
          std::chrono::steady_clock::now() - begin;
      if (round >= 0) times.push_back(taken.count() / calls);
    }
    if (self != 0) continue;
    std::sort(times.begin(), times.end());
    const double us = times[times.size() / 2];
    std::printf("%-44s %8.1f us a call (%.1f to %.1f), %.1f GB/s copied by the two\n",
                kNames[static_cast<int>(way)], us, times.front(), times.back(),
                4 * static_cast<double>(bytes) / us / 1e3);
  }
  if (self != 0) _exit(0);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
