// Programs of several GPUs as graphs of single ones, where a graph of several is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "core/device/fork_guard.h"
#include "core/device/timeline.h"
#include "cuda/backend/backend.h"
#include "cuda/backend/graph.h"
#include "cuda/device/launch_thread.h"
#include "cuda/driver/gpus.h"
#include "cuda_sim.h"
#include "shmap/error.h"
#include "tests/cuda/on_simulator/simulator_calls.h"
#include "tests/support/error_text.h"

namespace shmap::cuda {
namespace {

using test::calls_of;
using test::text_of;
using ::testing::HasSubstr;

class GpuGraphsTest : public ::testing::Test {
 protected:
  static constexpr int kGpus = 4;
  static void SetUpTestSuite() {
    setenv("SHMAP_SIM_GPUS", "4", 1);
    setenv("SHMAP_SIM_GRAPHS", "one_gpu", 1);
    unsetenv("SHMAP_GRAPHS");
    shmap_sim::reset();
  }
  void SetUp() override { backend = open(); }
  void TearDown() override {
    shmap_sim::record_calls(false);
    shmap_sim::clear_faults();
    backend.reset();
  }
  static std::unique_ptr<CudaBackend> open() {
    return std::make_unique<CudaBackend>(DeviceSpec::parse("cuda"), 0, 0, -1);
  }
  const LocalDevice& device(std::size_t i = 0) const { return backend->devices()[i]; }

  template <class F>
  Event run(Stream* stream, F work, std::vector<Event> waits = {}, const char* name = "work") {
    return run(std::vector<Stream*>{stream}, std::move(work), std::move(waits), name);
  }
  // A task that is `work` on the GPU; of several streams, with each of them in it.
  template <class F>
  Event run(const std::vector<Stream*>& streams, F work, std::vector<Event> waits = {},
            const char* name = "work") {
    struct Args {
      const char* name;
      std::vector<Stream*> streams;
      F work;
    };
    Task task;
    task.name = name;
    task.args = new Args{name, streams, std::move(work)};
    task.run = [](void* p, const TaskContext& c) {
      const auto* args = static_cast<Args*>(p);
      std::vector<cudaStream_t> natives = {static_cast<cudaStream_t>(c.native)};
      for (std::size_t i = 1; i < args->streams.size(); ++i)
        natives.push_back(native_in_group(*args->streams[i]));
      shmap_sim::enqueue_group(natives, args->name, args->work);
    };
    task.drop = [](void* p) noexcept { delete static_cast<Args*>(p); };
    std::lock_guard lock(backend->submit_mutex());
    return streams.size() == 1 ? streams[0]->enqueue(task, waits)
                               : backend->enqueue_group(streams, task, waits);
  }
  Event launch(Graph& graph, std::vector<Event> waits = {}) {
    std::lock_guard lock(backend->submit_mutex());
    return graph.launch(waits);
  }
  std::unique_ptr<CudaBackend> backend;
};

TEST_F(GpuGraphsTest, TheDriverIsAskedOnce) {
  shmap_sim::record_calls(true);
  for (int i = 0; i < 3; ++i) {
    CaptureScope capture(*backend);
    run(device(0).compute, [] {});
    run(device(1).compute, [] {});
    capture.end();
  }
  EXPECT_EQ(calls_of("cudaGraphInstantiate"), 1 + 3 * 2);
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 0);
  setenv("SHMAP_SIM_GRAPHS", "any", 1);  // a driver that takes them
  backend.reset();
  shmap_sim::reset();
  backend = open();
  shmap_sim::record_calls(true);
  for (int i = 0; i < 3; ++i) {
    CaptureScope capture(*backend);
    run(device(0).compute, [] {});
    run(device(1).compute, [] {});
    capture.end();
  }
  EXPECT_EQ(calls_of("cudaGraphInstantiate"), 1 + 3);
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 1);  // the trial
  for (const char* asked : {"per_gpu", "one"}) {
    setenv("SHMAP_GRAPHS", asked, 1);
    backend = open();
    shmap_sim::record_calls(true);
    CaptureScope capture(*backend);
    run(device(0).compute, [] {});
    run(device(1).compute, [] {});
    capture.end();
    EXPECT_EQ(calls_of("cudaGraphInstantiate"), std::string(asked) == "one" ? 1 : 2);
  }
  setenv("SHMAP_GRAPHS", "two", 1);
  test::expect_error<ValueError>([] { open(); }, {"SHMAP_GRAPHS", "two", "per_gpu"});
  unsetenv("SHMAP_GRAPHS");
  setenv("SHMAP_SIM_GRAPHS", "one_gpu", 1);
  backend.reset();
  shmap_sim::reset();
}

TEST_F(GpuGraphsTest, WithoutEdgesBetweenGpusEachHasOneGraph) {
  std::vector<int> ran(8, 0);
  CaptureScope capture(*backend);
  int i = 0;
  for (const LocalDevice& d : backend->devices()) {
    Event e;
    for (Stream* s : {d.compute, d.comm}) {
      e = run(s, [at = &ran[static_cast<std::size_t>(i++)]] { ++*at; }, {e});
    }
  }
  const Ref<Graph> graph = capture.end();
  EXPECT_EQ(graph->nodes(), 8);
  EXPECT_EQ(graph->edges(), 4);
  EXPECT_EQ(graph->tasks()[1].after, std::vector<int>{0});
  Event last = launch(*graph);
  shmap_sim::record_calls(true);
  for (int n = 0; n < 99; ++n) last = launch(*graph);
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 99 * kGpus);
  // The other GPUs come after the start of the first one, and the first one after their ends.
  EXPECT_EQ(calls_of("cudaStreamWaitEvent"), 99 * 2 * (kGpus - 1));
  int seen = 0;
  run(device(3).comm, [&] { seen = ran[7]; }).wait();
  EXPECT_EQ(seen, 100);
  last.wait();
  for (int n : ran) EXPECT_EQ(n, 100);
}

// A ring: each GPU copies from its neighbour while it computes.
TEST_F(GpuGraphsTest, ARingIsAPhaseAStep) {
  constexpr int kSteps = 4;
  std::vector<std::vector<int>> value(kSteps + 1, std::vector<int>(kGpus));
  std::vector<int> sum(kGpus, 0);
  for (int g = 0; g < kGpus; ++g) value[0][static_cast<std::size_t>(g)] = 1 << g;
  CaptureScope capture(*backend);
  std::vector<Event> here(kGpus);
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<Event> next(kGpus);
    for (std::size_t g = 0; g < kGpus; ++g) {
      const std::size_t from = (g + 1) % kGpus;
      next[g] = run(
          device(g).comm, [&value, step, g, from] { value[step + 1][g] = value[step][from]; },
          {here[from]}, "copy");
    }
    for (std::size_t g = 0; g < kGpus; ++g) {
      run(
          device(g).compute, [&value, &sum, step, g] { sum[g] += value[step][g]; }, {here[g]},
          "product");
    }
    here = next;
  }
  const Ref<Graph> graph = capture.end();
  shmap_sim::record_calls(true);
  for (int n = 1; n <= 20; ++n) {
    launch(*graph);
    if (n % 3 == 0) backend->synchronize();
  }
  // The copies of a step wait for those of the previous step; the product is beside them.
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 20 * kGpus * kSteps);
  backend->synchronize();
  for (int s : sum) EXPECT_EQ(s, 20 * 15);
}

// The order of a plan: all copies first. Each phase gets one of the products, not all of them.
TEST_F(GpuGraphsTest, ProductsAreSpreadOverThePhasesOfTheCopies) {
  constexpr std::size_t kSteps = 4;
  const auto name = [](const char* what, std::size_t step, std::size_t gpu) {
    return std::string(what) + " " + std::to_string(step) + " of " + std::to_string(gpu);
  };
  std::vector<std::string> names;  // owns the names that tasks point to
  names.reserve(2 * kSteps * kGpus);
  CaptureScope capture(*backend);
  std::vector<std::vector<Event>> here(kSteps + 1, std::vector<Event>(kGpus));
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (std::size_t g = 0; g < kGpus; ++g) {
      names.push_back(name("copy", step, g));
      const Event from = here[step][(g + 1) % kGpus];
      here[step + 1][g] = run(
          device(g).comm, [] {}, {from}, names.back().c_str());
    }
  }
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (std::size_t g = 0; g < kGpus; ++g) {
      names.push_back(name("product", step, g));
      run(
          device(g).compute, [] {}, {here[step][g]}, names.back().c_str());
    }
  }
  const Ref<Graph> graph = capture.end();
  shmap_sim::record_calls(true);
  launch(*graph).wait();
  backend->synchronize();
  EXPECT_EQ(calls_of("cudaGraphLaunch"), kGpus * static_cast<int>(kSteps));
  const std::vector<std::string> ran = shmap_sim::executed();
  const auto at = [&](const std::string& task) {
    return std::find(ran.begin(), ran.end(), task) - ran.begin();
  };
  for (std::size_t g = 0; g < kGpus; ++g) {
    EXPECT_LT(at(name("product", kSteps - 1, g)), static_cast<std::ptrdiff_t>(ran.size()));
    for (std::size_t step = 1; step < kSteps; ++step)
      EXPECT_LT(at(name("product", step - 1, g)), at(name("copy", step, g)));
  }
}

// Whatever the edges are, recorded work waits for the work that wrote its operands.
TEST_F(GpuGraphsTest, ProgramsAtRandomKeepTheirOrder) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    shmap_sim::set_seed(seed);
    std::mt19937 draw(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(draw() % n); };
    const std::size_t count = 5 + below(40);
    std::vector<std::int64_t> out(count, 0);
    std::vector<std::vector<std::size_t>> reads(count);
    std::vector<std::int64_t> wrong(1, 0);
    Ref<Graph> graph;
    {
      CaptureScope capture(*backend);
      std::vector<Event> done(count);
      for (std::size_t i = 0; i < count; ++i) {
        std::vector<Event> waits;
        for (std::size_t n = below(3); n > 0 && i > 0; --n) {
          reads[i].push_back(below(i));
          waits.push_back(done[reads[i].back()]);
        }
        const auto stream = [&](std::size_t gpu) {
          const LocalDevice& d = device(gpu);
          return below(3) == 0 ? d.comm : d.compute;
        };
        std::vector<Stream*> streams;
        if (below(5) == 0) {
          for (std::size_t g = 0, first = below(kGpus), n = 2 + below(3); g < n; ++g)
            streams.push_back(device((first + g) % kGpus).comm);
        } else {
          streams.push_back(stream(below(kGpus)));
        }
        done[i] = run(
            streams,
            [&out, &wrong, i, from = reads[i]] {
              for (std::size_t f : from) wrong[0] += out[f] != out[i] + 1;
              ++out[i];
            },
            waits);
      }
      graph = capture.end();
    }
    const std::int64_t launches = 6;
    for (std::int64_t n = 0; n < launches; ++n) {
      launch(*graph);
      if (below(2) == 0) run(device(below(kGpus)).compute, [] {});
    }
    backend->synchronize();
    EXPECT_EQ(wrong[0], 0) << "seed " << seed;
    for (std::int64_t n : out) EXPECT_EQ(n, launches) << "seed " << seed;
  }
}

TEST_F(GpuGraphsTest, TasksOfSeveralGpusAreRunAtEachLaunch) {
  std::vector<int> order;
  std::mutex mutex;
  const auto note = [&](int i) {
    return [&, i] {
      std::lock_guard lock(mutex);
      order.push_back(i);
    };
  };
  std::vector<Stream*> comms;
  for (const LocalDevice& d : backend->devices()) comms.push_back(d.comm);
  CaptureScope capture(*backend);
  const Event before = run(device(2).compute, note(0));
  const Event all = run(comms, note(1), {before}, "all");
  run(device(1).compute, note(2), {all});
  const Ref<Graph> graph = capture.end();
  EXPECT_EQ(graph->nodes(), 3);
  EXPECT_EQ(graph->tasks()[1].streams.size(), 4u);
  for (int n = 1; n <= 5; ++n) {
    launch(*graph);
    run(device(3).comm, note(3));  // after all of it
  }
  backend->synchronize();
  std::vector<int> expected;
  for (int n = 0; n < 5; ++n) expected.insert(expected.end(), {0, 1, 2, 3});
  // The launch orders the last task of one launch and a later task on another GPU.
  EXPECT_EQ(order, expected);
}

TEST_F(GpuGraphsTest, TenThousandReplaysDoNotGrow) {
  std::int64_t ran = 0;
  CaptureScope capture(*backend);
  const Event e = run(device(0).compute, [&] { ++ran; });
  const Event f = run(device(1).comm, [] {}, {e});
  run(
      {device(1).comm, device(2).comm}, [] {}, {f}, "both");
  const Ref<Graph> graph = capture.end();
  const auto some = [&](int n) {
    for (int i = 0; i < n; ++i) {
      Event last = launch(*graph);
      if (i % 16 == 0) last.wait();
      run(device(static_cast<std::size_t>(i) % kGpus).compute, [] {}, {last});
    }
    backend->synchronize();
  };
  some(3'000);
  const shmap_sim::Counts before = shmap_sim::counts();
  some(10'000);
  const shmap_sim::Counts after = shmap_sim::counts();
  EXPECT_EQ(ran, 13'000);
  EXPECT_LE(after.events, before.events + 1000);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.execs, before.execs);
  EXPECT_EQ(after.pending, 0u);
}

TEST_F(GpuGraphsTest, AnErrorFailsTheLaunchAlone) {
  int ran = 0, threw = 0;
  CaptureScope capture(*backend);
  const Event e = run(device(0).compute, [] {});
  const Event f = run(device(1).compute, [] {}, {e});
  Task task;
  task.name = "refuses";
  task.args = &threw;
  task.run = [](void* p, const TaskContext&) {
    if (++*static_cast<int*>(p) == 3) throw ValueError("not this time");
  };
  Event g;
  {
    std::lock_guard lock(backend->submit_mutex());
    Stream* streams[] = {device(1).comm, device(2).comm};
    g = backend->enqueue_group(streams, task, std::vector<Event>{f});
  }
  run(device(3).compute, [&] { ++ran; }, {g});
  const Ref<Graph> graph = capture.end();
  EXPECT_EQ(threw, 0);  // it is of several GPUs: no graph's
  launch(*graph).wait();
  EXPECT_EQ(ran, 1);
  for (int nth : {1, 2}) {
    shmap_sim::inject("cudaGraphLaunch", cudaErrorInvalidValue, nth);
    const Event bad = launch(*graph);
    EXPECT_THAT(text_of<DeviceError>([&] { bad.wait(); }), HasSubstr("cudaGraphLaunch"));
    EXPECT_EQ(ran, 1);
  }
  launch(*graph).wait();
  EXPECT_EQ(ran, 2);
  const Event refused = launch(*graph);
  EXPECT_THAT(text_of<ValueError>([&] { refused.wait(); }), HasSubstr("not this time"));
  EXPECT_EQ(ran, 2);
  // A launch is skipped if the launch that it waits for was skipped.
  EXPECT_TRUE(launch(*graph, {refused}).failed());
  launch(*graph).wait();
  EXPECT_EQ(ran, 3);
  EXPECT_NO_THROW(backend->synchronize());
}

TEST_F(GpuGraphsTest, AGraphKeepsWhatItsTasksRead) {
  const auto kept = std::make_shared<int>(0);
  {
    CaptureScope capture(*backend);
    run(device(0).compute, [kept] { ++*kept; });
    run(device(1).compute, [kept] {});
    Ref<Graph> graph = capture.end();
    for (int i = 0; i < 5; ++i) launch(*graph);
    EXPECT_GT(kept.use_count(), 1);
    graph.reset();  // while they are pending
  }
  EXPECT_EQ(*kept, 5);
  EXPECT_EQ(kept.use_count(), 1);
  // A capture that is given up drops what its tasks would have read.
  const std::uint64_t execs = shmap_sim::counts().execs;
  {
    CaptureScope capture(*backend);
    const Event e = run(device(0).compute, [kept] {});
    run(device(1).compute, [kept] {}, {e});
  }
  {
    CaptureScope capture(*backend);
    run(device(0).compute, [kept] {});
    run(device(1).compute, [kept] {});
    shmap_sim::inject("cudaGraphInstantiate", cudaErrorInvalidValue, 2);
    EXPECT_THROW(capture.end(), DeviceError);
  }
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_EQ(shmap_sim::counts().execs, execs);
  EXPECT_FALSE(capturing());
}

TEST_F(GpuGraphsTest, TheTimelineHasTheTasksOfAllParts) {
  TimelineRecorder recorder;
  set_timeline_sink(&recorder);
  Ref<Graph> graph;
  {
    CaptureScope capture(*backend);
    const Event e = run(
        device(0).compute, [] {}, {}, "first");
    const Event f = run(
        device(1).comm, [] {}, {e}, "second");
    run(
        {device(1).comm, device(3).comm}, [] {}, {f}, "both");
    graph = capture.end();
  }
  for (int i = 0; i < 3; ++i) launch(*graph);
  backend->synchronize();
  set_timeline_sink(nullptr);
  std::map<std::string, int> seen;
  for (const TimelineEvent& e : recorder.take()) ++seen[e.name];
  EXPECT_EQ(seen, (std::map<std::string, int>{{"first", 3}, {"second", 3}, {"both", 6}}));
}

TEST_F(GpuGraphsTest, LaunchesGoOnOnceItsThreadsHaveStopped) {
  int ran = 0;
  CaptureScope capture(*backend);
  for (const LocalDevice& d : backend->devices()) run(d.compute, [&] { ++ran; });
  const Ref<Graph> graph = capture.end();
  launch(*graph).wait();
  backend->stop();
  backend->stop();
  launch(*graph).wait();
  EXPECT_EQ(ran, 2 * kGpus);
}

TEST_F(GpuGraphsTest, AForkedChildLeavesWithoutThem) {
  CaptureScope capture(*backend);
  for (const LocalDevice& d : backend->devices()) run(d.compute, [] {});
  const Ref<Graph> graph = capture.end();
  launch(*graph).wait();
  watch_forks();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool refused = false;
    try {
      launch(*graph);
    } catch (const DeviceError&) {
      refused = true;
    }
    backend->stop();
    (void)backend.release();
    _exit(refused ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST(LaunchThread, DoesWhatItIsGivenAndStops) {
  setenv("SHMAP_SIM_GPUS", "4", 1);
  LaunchThread thread(1);
  int gpu = -1;
  for (int i = 0; i < 1000; ++i) {
    gpu = -1;
    ASSERT_TRUE(thread.start([](void* p) { return cudaGetDevice(static_cast<int*>(p)); }, &gpu));
    EXPECT_EQ(thread.wait(), cudaSuccess);
    EXPECT_EQ(gpu, 1);
  }
  ASSERT_TRUE(thread.start([](void*) { return cudaErrorInvalidValue; }, nullptr));
  EXPECT_EQ(thread.wait(), cudaErrorInvalidValue);
  // The thread also stops if nobody waited for its last call.
  ASSERT_TRUE(thread.start([](void* p) { return cudaGetDevice(static_cast<int*>(p)); }, &gpu));
  thread.stop();
  EXPECT_FALSE(thread.start([](void*) { return cudaSuccess; }, nullptr));
  thread.stop();
}

}  // namespace
}  // namespace shmap::cuda
