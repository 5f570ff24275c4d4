// process_fault_program <fault> [jit]: under mpirun, runs a loop of collectives over all processes,
// in the middle of which one of them goes wrong (process_faults_test). Process 1 does. With jit
// they are replays by then.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "shmap/shmap.h"

using namespace shmap;

namespace {

constexpr int kSteps = 20;
constexpr int kFaulty = 1;

void now(const char* what) {
  const auto t = std::chrono::system_clock::now().time_since_epoch();
  std::fprintf(
      stderr, "AT %s %lld\n", what,
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(t).count()));
}

// What is the same but for the program around it: `otherwise` in the process that is faulty.
void run_program(const Mesh& mesh, const std::string& fault, bool otherwise) {
  const Array x = device_put(ones({2 * mesh.size()}), NamedSharding(mesh, P("i")));
  const auto sums = [&](auto before) {
    return jit(shard_map([=](Array b) { return psum(before(b), "i"); }, mesh, {P("i")}, P()));
  };
  if (fault == "literal") {
    const float scale = otherwise ? 3.f : 2.f;  // as from a file of this process's own
    sums([=](Array b) { return b * scale; })(x).block_until_ready();
  } else if (fault == "traced") {
    sums([=](Array b) { return otherwise ? sin(b) + b : b + b; })(x).block_until_ready();
  } else if (fault == "captured") {
    const Array scale = array<float>({1.f, otherwise ? 3.f : 2.f}, {2});
    sums([=](Array b) { return b * scale; })(x).block_until_ready();
  } else if (fault == "same") {  // what captures, and has literals, in all processes alike
    const Array scale = array<float>({1.f, 2.f}, {2});
    for (int i = 0; i < 3; ++i)
      sums([=](Array b) { return b * scale + 2.f; })(x).block_until_ready();
  }
}

int run(const std::string& fault, bool replays) {
  const bool faulty = fault != "none" && std::getenv("OMPI_COMM_WORLD_RANK") != nullptr &&
                      std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")) == kFaulty;
  if (faulty && fault == "kill_at_start") {
    now("fault");
    raise(SIGKILL);
  }
  if (faulty && fault == "devices") {
    int argc = 0;
    char** argv = nullptr;
    init(argc, argv, {.devices = "cpu:3"});
  }
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  for (const char* name : {"literal", "traced", "captured", "same"}) {
    if (fault != name) continue;
    run_program(mesh, fault, faulty);
    return 0;
  }
  const auto sum_all = shard_map([](Array b) { return psum(b, "i"); }, mesh, {P("i")}, P());
  const auto max_all = shard_map([](Array b) { return pmax(b, "i"); }, mesh, {P("i")}, P());
  const auto shift = shard_map(
      [](Array b) {
        return ppermute(b, "i", {{0, 1}, {1, 0}});
      },
      mesh, {P("i")}, P("i"));
  const auto fast_sum = jit(sum_all);
  const auto fast_max = jit(max_all);
  const auto fast_shift = jit(shift);
  const auto summed = [&](Array x) { return replays ? fast_sum(x) : sum_all(x); };
  const auto largest = [&](Array x) { return replays ? fast_max(x) : max_all(x); };
  const auto shifted = [&](Array x) { return replays ? fast_shift(x) : shift(x); };
  const char* elements = std::getenv("SHMAP_TEST_FAULT_ELEMENTS");
  const std::int64_t each = elements != nullptr ? std::atoll(elements) : 1000;
  if (const char* seed = std::getenv("SHMAP_TEST_FAULT_DELAY_US"))
    std::srand(static_cast<unsigned>(std::atoi(seed)));
  Array x = ones({n * each});
  for (int step = 0; step < kSteps; ++step) {
    const bool here = faulty && step == kSteps / 2;
    if (here) {
      if (const char* delay = std::getenv("SHMAP_TEST_FAULT_DELAY_US"))
        std::this_thread::sleep_for(std::chrono::microseconds(std::atoi(delay)));
      now("fault");
      if (fault == "kill_in") {  // a moment into what it runs next
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::microseconds(std::rand() % 150));
          raise(SIGKILL);
        }).detach();
      }
      if (fault == "kill") raise(SIGKILL);
      if (fault == "abort") std::abort();
      if (fault == "stop") raise(SIGSTOP);
      if (fault == "stuck") std::this_thread::sleep_for(std::chrono::hours(1));
      if (fault == "throw") throw std::runtime_error("this one does not go on");
      if (fault == "exit_0") return 0;
      if (fault == "exit_3") return 3;
      if (fault == "skip") continue;
      if (fault == "extra") largest(x).block_until_ready();
      if (fault == "count") {
        summed(ones({n * each / 2})).block_until_ready();
        continue;
      }
      if (fault == "dtype") {
        summed(ones({n * each}, i32)).block_until_ready();
        continue;
      }
      if (fault == "op") {
        largest(x).block_until_ready();
        continue;
      }
    }
    // In turns, so that the next collective after one that was left out is another.
    const Array y = step % 2 == 0 ? summed(x) : largest(x);
    const float wanted = step % 2 == 0 ? static_cast<float>(n) : 1.f;
    if (y.to_vector<float>()[0] != wanted) {
      std::fprintf(stderr, "WRONG VALUE at step %d\n", step);
      return 4;
    }
    shifted(x).block_until_ready();
  }
  std::fprintf(stderr, "process %d: all steps done\n", process_index());
  if (faulty && fault == "kill_at_end") {
    now("fault");
    raise(SIGKILL);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  const bool replays = argc > 2;
  if (fault == "throw") return run(fault, replays);  // nobody catches it
  try {
    return run(fault, replays);
  } catch (const std::exception& e) {
    now("error");
    std::fprintf(stderr, "process caught: %s\n", e.what());
    return 1;
  }
}
