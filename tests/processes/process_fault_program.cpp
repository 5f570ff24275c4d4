// process_fault_program <fault> [jit]: under mpirun, runs a loop of collectives over all processes,
// in which process 1 fails (process_faults_test, scripts/process_faults): before it uses devices,
// in the middle of the loop, or when its program has ended. With jit the collectives are replays by
// then.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/base/fault.h"
#include "core/processes/exchanges.h"
#include "core/processes/fault_listener.h"
#include "core/processes/processes.h"
#include "shmap/shmap.h"

using namespace shmap;

namespace {

constexpr int kFaulty = 1;

void now(const char* what) {
  const auto t = std::chrono::system_clock::now().time_since_epoch();
  std::fprintf(
      stderr, "AT %s %lld\n", what,
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(t).count()));
}

std::chrono::microseconds delay() {
  const char* us = std::getenv("SHMAP_TEST_FAULT_DELAY_US");
  return std::chrono::microseconds(us != nullptr ? std::atoi(us) : 0);
}

void kill_after(std::chrono::microseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    raise(SIGKILL);
  }).detach();
}

// Stops this process, and lets another process continue it after a moment.
void stop_for(std::chrono::microseconds time) {
  if (fork() == 0) {
    usleep(static_cast<useconds_t>(time.count()));
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
}

// Whether a child that this process forks here, and that calls exit, ends with that code.
bool child_exits_with(int code) {
  const pid_t child = fork();
  if (child == 0) std::exit(code);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == code;
}

// Counts how often it is told of the job's failure.
class Listener final : public FaultListener {
 public:
  void listen() { Processes::joined()->exchanges().tell_of_fault(*this); }
  void job_failed(const std::string&) noexcept override { ++times_; }
  // Waits until it is told, and a while longer.
  int times() const {
    for (int ms = 0; ms < 2000 && times_ == 0; ++ms) wait();
    for (int ms = 0; ms < 20; ++ms) wait();
    return times_;
  }

 private:
  static void wait() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  std::atomic<int> times_{0};
};
Listener first_listener, second_listener, late_listener;

// The folder of this program.
std::filesystem::path folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

[[noreturn]] void loop_in_host_code() {
  for (std::atomic<unsigned> n{0};;) n.fetch_add(1);
}

// Faults before the process has joined the others.
void at_start(const std::string& fault) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  };
  if (fault == "kill_at_start") {
    now("fault");
    raise(SIGKILL);
  } else if (fault == "kill_in_start") {  // anywhere in what follows
    now("fault");
    kill_after(8 * delay());
    devices();
    std::this_thread::sleep_for(std::chrono::hours(1));
  } else if (fault == "absent") {
    now("fault");
    std::this_thread::sleep_for(std::chrono::hours(1));
  } else if (fault == "stop_at_start") {
    now("fault");
    raise(SIGSTOP);
  } else if (fault == "devices") {
    now("fault");
    int argc = 0;
    char** argv = nullptr;
    init(argc, argv, {.devices = "cpu:3"});
  } else if (fault == "environment") {
    now("fault");
    set("SHMAP_CHECK_NANS", "1");
  } else if (fault == "environment_overlap") {
    now("fault");
    set("SHMAP_OVERLAP", "ring");
  } else if (fault == "end_at_start") {
    now("fault");
    std::exit(0);
  } else if (fault == "version") {
    now("fault");
    set("SHMAP_MPI_PATH", folder() / "libprocess_other_version.so");
  } else if (fault == "stop_in_finalize") {
    set("SHMAP_MPI_PATH", folder() / "libprocess_stops_in_finalize.so");
  }
}

// Runs programs that are the same in all processes except for `otherwise` in the faulty process.
// False if `fault` is another one.
bool run_program(const Mesh& mesh, const std::string& fault, bool otherwise) {
  const Array x = device_put(ones({2 * mesh.size()}), NamedSharding(mesh, P("i")));
  const auto sums = [&](auto before) {
    return jit(shard_map([=](Array b) { return psum(before(b), "i"); }, mesh, {P("i")}, P()));
  };
  if (otherwise) now("fault");
  if (fault == "literal") {
    const float scale = otherwise ? 3.f : 2.f;  // as from a file of this process's own
    sums([=](Array b) { return b * scale; })(x).block_until_ready();
  } else if (fault == "traced") {
    sums([=](Array b) { return otherwise ? sin(b) + b : b + b; })(x).block_until_ready();
  } else if (fault == "captured") {
    const Array scale = array<float>({1.f, otherwise ? 3.f : 2.f}, {2});
    sums([=](Array b) { return b * scale; })(x).block_until_ready();
  } else if (fault == "captured_on_thread") {  // where the first message of the program tells it
    const Array scale = array<float>({1.f, otherwise ? 3.f : 2.f}, {2});
    std::exception_ptr error;
    std::thread([&] {
      try {
        sums([=](Array b) { return b * scale; })(x).block_until_ready();
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error != nullptr) std::rethrow_exception(error);
  } else if (fault == "captured_large") {
    Array scale = ones({100'000});
    if (otherwise) scale = concatenate({ones({99'999}), full({1}, 3.f)}, 0);
    const auto f = jit(shard_map([=](Array b) { return b + max(scale); }, mesh, {P("i")}, P("i")));
    f(x).block_until_ready();
  } else if (fault == "literal_alone") {
    const float scale = otherwise ? 3.f : 2.f;
    jit(shard_map([=](Array b) { return b * scale; }, mesh, {P("i")}, P("i")))(x)
        .block_until_ready();
  } else if (fault == "argument" || fault == "argument_of_body") {
    const auto f =
        shard_map([](Array b, Array s) { return psum(b * s, "i"); }, mesh, {P("i"), P()}, P());
    const Array scale(otherwise ? 3.f : 2.f);
    (fault == "argument" ? jit(f)(x, scale) : f(x, scale)).block_until_ready();
  } else if (fault == "closed_over") {
    const Array scale = array<float>({1.f, otherwise ? 3.f : 2.f}, {2});
    shard_map([=](Array b) { return b * scale; }, mesh, {P("i")}, P("i"))(x).block_until_ready();
  } else if (fault == "put") {
    const std::vector<float> data = {1.f, otherwise ? 3.f : 2.f};
    device_put(array<float>(data, {2}), NamedSharding(mesh, P())).block_until_ready();
  } else if (fault == "not_under_jit") {  // one process alone calls it without
    const auto f = shard_map([](Array b) { return psum(b, "i"); }, mesh, {P("i")}, P());
    (otherwise ? f(x) : jit(f)(x)).block_until_ready();
  } else if (fault == "same") {  // what captures, and has literals, in all processes alike
    const Array scale = array<float>({1.f, 2.f}, {2});
    for (int i = 0; i < 3; ++i) {
      sums([=](Array b) { return b * scale + 2.f; })(x).block_until_ready();
      const Array all = device_put(full({1000}, static_cast<float>(i)), NamedSharding(mesh, P()));
      const auto f = shard_map([=](Array b, Array s) { return b * scale * s + max(all); }, mesh,
                               {P("i"), P()}, P("i"));
      const Array factor(static_cast<float>(i));
      f(x, factor).block_until_ready();
      jit(f)(x, factor).block_until_ready();
    }
  } else if (fault == "kill_in_capture") {
    if (otherwise) kill_after(delay() / 4);
    for (int i = 0; i < (otherwise ? 1'000'000 : 1000); ++i)
      sums([=](Array b) { return b * static_cast<float>(i); })(x).block_until_ready();
  } else if (fault == "threads") {  // each has an order of its own, the two together have none
    const auto calls = [&](auto f) {
      const auto mapped = shard_map(f, mesh, {P("i")}, P());
      for (int i = 0; i < 1000; ++i) mapped(x).block_until_ready();
    };
    std::exception_ptr error;
    std::thread other([&] {
      try {
        calls([](Array b) { return pmax(b, "i"); });
      } catch (...) {
        error = std::current_exception();
      }
    });
    try {
      calls([](Array b) { return psum(b, "i"); });
    } catch (...) {
      other.join();
      throw;
    }
    other.join();
    if (error != nullptr) std::rethrow_exception(error);
  } else {
    return false;
  }
  return true;
}

// A collective that sends as many bytes in the faulty process as in the others. False if `fault` is
// another one.
bool run_alike(const Mesh& mesh, const std::string& fault, bool otherwise) {
  const std::int64_t n = mesh.size();
  if (otherwise) now("fault");
  if (fault == "exchange_dims") {
    const Array x = device_put(ones({32 * n * n}), NamedSharding(mesh, P("i")));
    const auto f = shard_map(
        [=](Array b) {
          // Steps of 4 and 128 bytes, or of 8 and 4.
          const Array y = otherwise
                              ? all_to_all(reshape(b, {16, 2 * n, 1}), "i", 1, 2, {.tiled = true})
                              : all_to_all(reshape(b, {32, n}), "i", 1, 0, {.tiled = true});
          return reshape(y, {32 * n});
        },
        mesh, {P("i")}, P("i"));
    f(x).block_until_ready();
  } else if (fault == "exchange_axes") {
    // Four processes of two devices: each has both values of j, and both of k.
    std::vector<Device> order;
    for (const int d : {0, 2, 3, 1, 4, 6, 7, 5}) order.push_back(devices()[d]);
    const Mesh cube(NdArray<Device>(order, {2, 2, 2}), axes("i", "j", "k"));
    const char* const other = otherwise ? "k" : "j";
    const Array x = device_put(ones({8}), NamedSharding(cube, P(axes("i", other))));
    shard_map([](Array b) { return psum(b, "i"); }, cube, {P(axes("i", other))}, P(other))(x)
        .block_until_ready();
  } else {
    return false;
  }
  return true;
}

// In a branch that devices 0 and 2 of i take, and for which each of these calls the collective on
// its own, the faulty process has no memory at one allocation after another, and tries again. False
// where a value is wrong.
bool run_branches_without_memory(bool otherwise) {
  // Four processes of two devices: the first two have devices 0 and 2 of i, the others 1 and 3.
  std::vector<Device> order;
  for (const std::size_t d : {0, 2, 4, 6, 1, 3, 5, 7}) order.push_back(devices()[d]);
  const Mesh grid(NdArray<Device>(order, {4, 2}), axes("i", "j"));
  const auto f = shard_map(
      [](Array b) {
        const auto summed = [](Array x) { return pbroadcast(psum(x, "j"), "j"); };
        return cond(
            axis_index("i") % 2 == 0, summed, [](Array x) { return x; }, b);
      },
      grid, {P("i", "j")}, P("i", "j"));
  const Array x = device_put(ones({4, 2}), NamedSharding(grid, P("i", "j")));
  f(x).block_until_ready();
  if (otherwise) now("fault");
  for (int nth = 1; nth <= 40; ++nth) {
    const float value = static_cast<float>(nth);
    const Array scaled = (x * value).block_until_ready();
    Array y;
    {
      const fault::Scoped one(otherwise ? "allocate#" + std::to_string(nth) + ":oom" : "");
      for (bool done = false; !done;) {
        try {
          y = f(scaled);
          done = true;
        } catch (const OutOfMemory&) {
          continue;
        }
      }
    }
    for (const Shard& shard : y.addressable_shards()) {
      const float wanted = shard.index[0].start % 2 == 0 ? 2 * value : value;
      if (shard.data.to_vector<float>()[0] == wanted) continue;
      std::fprintf(stderr, "WRONG VALUE at allocation %d\n", nth);
      return false;
    }
  }
  return true;
}

// In calls with two collectives, the process has no memory at one allocation after another, and
// calls again. `call`: an eager body, a new function under jit, or an operation on a global array.
// False where a value is wrong.
bool run_calls_without_memory(const Mesh& mesh, const std::string& call, bool otherwise) {
  const std::int64_t n = mesh.size();
  const auto body = shard_map(
      [](Array b) {
        const Array sum = psum(b, "i");
        const Array both = concatenate({sum, sum * 2.f}, 0);
        return both + psum(max(both, 0), "i");
      },
      mesh, {P("i")}, P());
  if (otherwise) now("fault");
  for (int nth = 1; nth <= 12; ++nth) {
    const float value = static_cast<float>(nth);
    // The largest element is the first.
    Array x = arange(n - 1, -1, -1, f32) * value;
    x = device_put(x, NamedSharding(mesh, P("i"))).block_until_ready();
    const auto planned = jit(body);
    Array y;
    {
      const fault::Scoped one(otherwise ? "allocate#" + std::to_string(nth) + ":oom" : "");
      for (bool done = false; !done;) {
        try {
          y = call == "body" ? body(x) : call == "jit" ? planned(x) : sort(x, 0);
          done = true;
        } catch (const OutOfMemory&) {
          continue;
        }
      }
    }
    const float sum = value * static_cast<float>(n * (n - 1) / 2);
    const float wanted = call == "global" ? 0 : sum + 2 * sum * static_cast<float>(n);
    for (const Shard& shard : y.addressable_shards()) {
      if (shard.index[0].start != 0 || shard.data.to_vector<float>()[0] == wanted) continue;
      std::fprintf(stderr, "WRONG VALUE at allocation %d\n", nth);
      return false;
    }
  }
  return true;
}

// In a device_put of what changes from call to call, the process has no memory at one allocation
// after another, and calls again. False where that did not happen.
bool run_puts_without_memory(const Mesh& mesh, bool otherwise) {
  bool failed = false;
  if (otherwise) now("fault");
  for (int nth = 1; nth <= 4; ++nth) {
    const Array batch = full({8}, static_cast<float>(nth)).block_until_ready();
    const fault::Scoped one(otherwise ? "allocate#" + std::to_string(nth) + ":oom" : "");
    for (bool done = false; !done;) {
      try {
        device_put(batch, NamedSharding(mesh, P())).block_until_ready();
        done = true;
      } catch (const OutOfMemory&) {
        failed = true;
      }
    }
  }
  return failed || !otherwise;
}

int run(const std::string& fault, bool replays) {
  const bool faulty = fault != "none" && std::getenv("OMPI_COMM_WORLD_RANK") != nullptr &&
                      std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")) == kFaulty;
  if (faulty) at_start(fault);
  if (fault == "own_term") signal(SIGTERM, [](int) {});
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  if (fault == "op") first_listener.listen(), second_listener.listen();
  for (const char* name : {"literal", "literal_alone", "traced", "captured", "captured_on_thread",
                           "captured_large", "argument", "argument_of_body", "closed_over", "put",
                           "not_under_jit", "same", "kill_in_capture", "threads"}) {
    if (fault != name) continue;
    run_program(mesh, fault, faulty);
    return 0;
  }
  if (fault.starts_with("exchange_") && run_alike(mesh, fault, faulty)) return 0;
  if (fault == "branches_without_memory") return run_branches_without_memory(faulty) ? 0 : 4;
  if (fault == "again_put") return run_puts_without_memory(mesh, faulty) ? 0 : 4;
  if (fault.starts_with("again_")) {  // again_<call>, or again_<call>_in_all
    const bool all = fault.ends_with("_in_all");
    const std::string call = fault.substr(6, fault.find('_', 6) - 6);
    return run_calls_without_memory(mesh, call, faulty || all) ? 0 : 4;
  }
  const auto sum_all = shard_map([](Array b) { return psum(b, "i"); }, mesh, {P("i")}, P());
  const auto max_all = shard_map([](Array b) { return pmax(b, "i"); }, mesh, {P("i")}, P());
  const auto shift = shard_map(
      [](Array b) {
        return ppermute(b, "i", {{0, 1}, {1, 0}});
      },
      mesh, {P("i")}, P("i"));
  // The collectives that copy: the last word of the fault names one.
  const auto copied = shard_map(
      [&](Array b) {
        if (fault == "dtype_gather") return all_gather(b, "i", {.axis = 0, .tiled = true});
        if (fault == "dtype_exchange") return all_to_all(b, "i", 0, 0, {.tiled = true});
        if (fault == "dtype_broadcast") return pbroadcast(broadcast_from(b, "i", 0), "i");
        return ppermute(b, "i", ring_permutation("i", 1));
      },
      mesh, {P("i")}, P("i"));
  // Around all devices, by so many.
  const auto turn = [&](int by) {
    return shard_map([=](Array b) { return ppermute(b, "i", ring_permutation("i", by)); }, mesh,
                     {P("i")}, P("i"));
  };
  const auto fast_sum = jit(sum_all);
  const auto fast_max = jit(max_all);
  const auto fast_shift = jit(shift);
  const auto summed = [&](Array x) { return replays ? fast_sum(x) : sum_all(x); };
  const auto largest = [&](Array x) { return replays ? fast_max(x) : max_all(x); };
  const auto shifted = [&](Array x) { return replays ? fast_shift(x) : shift(x); };
  const char* elements = std::getenv("SHMAP_TEST_FAULT_ELEMENTS");
  const std::int64_t each = elements != nullptr ? std::atoll(elements) : 1000;
  // Rows and columns that each have devices of several processes.
  const Mesh grid = make_mesh({2, n / 2}, axes("r", "c"));
  const auto over = [&](const char* axis) {
    return shard_map([=](Array b) { return psum(b, axis); }, grid, {P()}, P());
  };
  const auto rows = over("r"), columns = over("c");
  std::srand(static_cast<unsigned>(delay().count()));
  const char* set_steps = std::getenv("SHMAP_TEST_FAULT_STEPS");
  const int steps = set_steps != nullptr ? std::atoi(set_steps) : 20;
  // The thread that kills this process may get a core only after many more steps.
  const int last = fault == "kill_in" ? std::numeric_limits<int>::max() : steps;
  Array x = ones({n * each});
  for (int step = 0; step < last; ++step) {
    const bool here = faulty && step == steps / 2;
    if (here) {
      std::this_thread::sleep_for(delay());
      now("fault");
      // A moment into what it runs next.
      if (fault == "kill_in") kill_after(std::chrono::microseconds(std::rand() % 150));
      if (fault == "kill") raise(SIGKILL);
      if (fault.starts_with("term") || fault == "own_term") raise(SIGTERM);
      if (fault == "term_twice") raise(SIGTERM);
      if (fault.starts_with("term")) std::this_thread::sleep_for(std::chrono::hours(1));
      if (fault == "abort") std::abort();
      if (fault == "stop") raise(SIGSTOP);
      if (fault == "stop_and_go") stop_for(std::chrono::milliseconds(1700));
      if (fault == "stop_long_and_go") stop_for(std::chrono::seconds(5));
      if (fault == "stuck") loop_in_host_code();
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
      if (fault == "mesh") {
        const Mesh other = make_mesh({n / 2, 2}, axes("i", "j"));
        shard_map([](Array b) { return psum(b, axes("i", "j")); }, other, {P(axes("i", "j"))},
                  P())(x)
            .block_until_ready();
        continue;
      }
      if (fault == "out_of_memory") {  // caught, and the collective is called again
        const fault::Scoped once("allocate:oom");
        try {
          summed(x).block_until_ready();
          std::fprintf(stderr, "WRONG VALUE: no OutOfMemory\n");
          return 4;
        } catch (const OutOfMemory&) {
        }
      }
      if (fault == "stuck_kernel") {
        fault::arm("kernel:sleep=3600000");
        (x * 2.f).block_until_ready();
      }
    }
    if (fault == "suspended" && step == steps / 2) {
      // All processes are stopped for a while. The faulty one comes to the next collective late, by
      // less than the deadline without that time.
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        stop_for(std::chrono::seconds(6));
      }).detach();
      for (int part = 0; here && part < 20; ++part)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (fault.starts_with("failed_kernel") && step == steps / 2) {
      const bool all = fault == "failed_kernel_in_all";
      Array y;
      {
        const fault::Scoped throws(here || all ? "kernel:throw" : "");
        y = x * 2.f;
      }
      try {
        summed(y).block_until_ready();
      } catch (const CollectiveError&) {
        throw;
      } catch (const Error&) {  // the kernel's own: caught here as everywhere
      }
    }
    if (fault.starts_with("mesh_") && step == steps / 2) {
      // One line, of which the faulty process makes another mesh.
      std::vector<Device> order = devices();
      if (here && fault == "mesh_order") std::swap(order.front(), order.back());
      const bool turned = here && fault == "mesh_shape";
      const Mesh made =
          make_mesh(turned ? Shape{n / 4, 4} : Shape{n / 2, 2},
                    here && fault == "mesh_names" ? axes("i", "k") : axes("i", "j"), order);
      const Axes both(made.axis_names());
      shard_map([=](Array b) { return psum(b, both); }, made, {P(both)}, P())(x)
          .block_until_ready();
    }
    if (fault.starts_with("dtype_") && step == steps / 2)
      copied(ones({n * each}, here ? i32 : f32)).block_until_ready();
    if (fault.starts_with("axes")) {
      // axes_early: each message about it comes before its receiver has begun.
      if (fault == "axes_early" && step == steps / 2 && process_index() < 2)
        std::this_thread::sleep_for(std::chrono::milliseconds(process_index() == 0 ? 600 : 300));
      (here ? columns : rows)(ones({each})).block_until_ready();
    }
    if (fault.starts_with("fork_exit_") && step == steps / 2) {
      for (int round = 0; round < 10; ++round) {
        const Array under_way = summed(x);
        if (here && !child_exits_with(fault.back() - '0')) {
          std::fprintf(stderr, "WRONG VALUE: the exit code of a child\n");
          return 4;
        }
        under_way.block_until_ready();
      }
    }
    if (fault == "permutation") turn(here ? -1 : 1)(x).block_until_ready();
    // Two collectives alternate, so that the one after a skipped collective is different.
    if (here && fault == "kill_after") summed(x).block_until_ready(), raise(SIGKILL);
    const Array y = step % 2 == 0 ? summed(x) : largest(x);
    const float wanted = step % 2 == 0 ? static_cast<float>(n) : 1.f;
    if (y.to_vector<float>()[0] != wanted) {
      std::fprintf(stderr, "WRONG VALUE at step %d\n", step);
      return 4;
    }
    shifted(x).block_until_ready();
  }
  std::fprintf(stderr, "process %d: all steps done\n", process_index());
  if (!faulty) return 0;
  if (fault.ends_with("_at_end") || fault == "kill_in_finish") now("fault");
  if (fault == "kill_at_end") raise(SIGKILL);
  if (fault == "stop_at_end") raise(SIGSTOP);
  if (fault == "stuck_at_end") loop_in_host_code();
  if (fault == "kill_in_finish") kill_after(delay() / 8);  // the program's end takes some ms
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
    if (fault == "op") {
      late_listener.listen();
      std::fprintf(stderr, "listeners were told %d, %d and %d times\n", first_listener.times(),
                   second_listener.times(), late_listener.times());
    }
    std::fprintf(stderr, "process caught: %s\n", e.what());
    return 1;
  }
}
