// The calls that the CUDA device layer makes to the runtime, and its reactions to the answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/device/timeline.h"
#include "core/runtime/device_ops.h"
#include "cuda/backend/backend.h"
#include "cuda/backend/graph.h"
#include "cuda/device/host_copy.h"
#include "cuda/device/host_reads.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "cuda_sim.h"
#include "shmap/error.h"
#include "tests/cuda/on_simulator/simulator_calls.h"
#include "tests/support/timeline_scope.h"

namespace shmap::cuda {
namespace {

using test::calls_of;
using test::text_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CudaDeviceLayer : public ::testing::Test {
 protected:
  void open(const std::string& devices, std::int64_t limit = -1) {
    backend = std::make_unique<CudaBackend>(DeviceSpec::parse(devices), 0, 0, limit);
  }
  void TearDown() override {
    shmap_sim::record_calls(false);
    shmap_sim::clear_faults();
    backend.reset();
    EXPECT_FALSE(shmap_sim::overrun_seen());
  }
  const LocalDevice& device(std::size_t i = 0) const { return backend->devices()[i]; }

  // A task that is `work` on the GPU.
  template <class F>
  Event run(Stream* stream, F work, std::vector<Event> waits = {}, const char* name = "work") {
    struct Args {
      const char* name;
      F work;
    };
    Task task;
    task.name = name;
    task.args = new Args{name, std::move(work)};
    task.run = [](void* p, const TaskContext& c) {
      const auto* args = static_cast<Args*>(p);
      shmap_sim::enqueue(static_cast<cudaStream_t>(c.native), args->name, args->work);
    };
    task.drop = [](void* p) noexcept { delete static_cast<Args*>(p); };
    std::lock_guard lock(backend->submit_mutex());
    return stream->enqueue(task, waits);
  }
  // A task that is host code when it is enqueued.
  template <class F>
  Event host(std::span<Stream* const> streams, F f, std::vector<Event> waits = {}) {
    Task task;
    task.name = "host";
    task.args = &f;
    task.run = [](void* p, const TaskContext& c) { (*static_cast<F*>(p))(c); };
    std::lock_guard lock(backend->submit_mutex());
    return streams.size() == 1 ? streams[0]->enqueue(task, waits)
                               : backend->enqueue_group(streams, task, waits);
  }
  Event launch(Graph& graph) {
    std::lock_guard lock(backend->submit_mutex());
    return graph.launch();
  }
  std::unique_ptr<CudaBackend> backend;
};

// ------------------------------------------------------------------------------------ discovery

TEST(CudaGpus, SaysWhyThereIsNone) {
  const std::string gpus = std::getenv("SHMAP_SIM_GPUS");
  unsetenv("SHMAP_SIM_GPUS");
  shmap_sim::reset();
  const GpuCount no_driver = count_gpus();
  EXPECT_EQ(no_driver.gpus, 0);
  EXPECT_FALSE(no_driver.too_old);
  EXPECT_THAT(text_of<DeviceError>([&] { chosen_gpus(DeviceSpec::parse("cuda:0x2"), no_driver); }),
              AllOf(HasSubstr("GPU 0"), HasSubstr("no NVIDIA driver answers"),
                    HasSubstr("SHMAP_DEVICES=cpu:8")));
  setenv("SHMAP_SIM_GPUS", "0", 1);
  shmap_sim::reset();
  EXPECT_THAT(text_of<DeviceError>([] { chosen_gpus(DeviceSpec::parse("cuda"), count_gpus()); }),
              AllOf(HasSubstr("every GPU"), HasSubstr("no GPU is present")));
  setenv("SHMAP_SIM_GPUS", "2", 1);
  shmap_sim::reset();
  shmap_sim::inject("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  const GpuCount old = count_gpus();
  EXPECT_TRUE(old.too_old);
  EXPECT_THAT(old.why, AllOf(HasSubstr("too old"), HasSubstr("wants a driver of CUDA")));
  const GpuCount two = count_gpus();
  EXPECT_EQ(two.gpus, 2);
  EXPECT_EQ(chosen_gpus(DeviceSpec::parse("cuda"), two), (std::vector<int>{0, 1}));
  EXPECT_EQ(chosen_gpus(DeviceSpec::parse("cuda:1"), two), (std::vector<int>{1}));
  EXPECT_THAT(
      text_of<DeviceError>([&] { chosen_gpus(DeviceSpec::parse("cuda:1,2"), two); }),
      AllOf(HasSubstr("no GPU 2"), HasSubstr("GPU 1, 2 were asked for"), HasSubstr("GPU 0 to 1")));
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");  // set before main
  setenv("SHMAP_SIM_GPUS", gpus.c_str(), 1);
  shmap_sim::reset();
}

TEST_F(CudaDeviceLayer, MoreSpacesThanMemoryIsAClearError) {
  EXPECT_THAT(text_of<DeviceError>([&] { open("cuda:0x4096/4096"); }),
              AllOf(HasSubstr("4096 devices in 4096 memory spaces"), HasSubstr("free memory"),
                    HasSubstr("SHMAP_DEVICES")));
  open("cuda:0x8/8");
  const std::int64_t share = backend->spaces()[0]->limit();
  EXPECT_GT(share, 0);
  for (MemorySpace* space : backend->spaces()) EXPECT_EQ(space->limit(), share);
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  EXPECT_LE(8 * share, static_cast<std::int64_t>(free));
}

// ------------------------------------------------------------------------------- marks and gates

TEST_F(CudaDeviceLayer, WaitsWithinAStreamCostNothing) {
  open("cuda:0x2");
  run(device().compute, [] {}).wait();
  shmap_sim::record_calls(true);
  Event last;
  for (int i = 0; i < 20; ++i) last = run(device().compute, [] {}, {last});
  EXPECT_EQ(calls_of("cudaEventRecord"), 0);
  EXPECT_EQ(calls_of("cudaStreamWaitEvent"), 0);
  last.wait();
  EXPECT_EQ(calls_of("cudaEventRecord"), 1);  // one covers them all
}

TEST_F(CudaDeviceLayer, AMissedPointIsRecordedFromThenOn) {
  open("cuda:0x2");
  const Event early = run(device().compute, [] {});
  run(device().compute, [] {});
  shmap_sim::record_calls(true);
  const Event copied = run(device().comm, [] {}, {early});  // waits for more than it asked for
  EXPECT_EQ(calls_of("cudaStreamWaitEvent"), 1);
  run(device().comm, [] {}, {early});  // which covers this, too
  EXPECT_EQ(calls_of("cudaStreamWaitEvent"), 1);
  shmap_sim::record_calls(true);
  run(device().compute, [] {});
  EXPECT_EQ(calls_of("cudaEventRecord"), 1);
  copied.wait();
}

TEST_F(CudaDeviceLayer, PollingAloneEnds) {
  open("cuda:0x1");
  const Event e = run(device().compute, [] {});
  for (int i = 0; i < 1000 && !e.done(); ++i) std::this_thread::yield();
  EXPECT_TRUE(e.done());
}

TEST_F(CudaDeviceLayer, ReplaysOfAGraphOn24StreamsCostALaunchEach) {
  open("cuda:0x12");
  std::vector<std::int64_t> ran(24, 0);
  Ref<Graph> graph;
  {
    CaptureScope capture(*backend);
    int i = 0;
    for (const LocalDevice& d : backend->devices()) {
      for (Stream* s : {d.compute, d.comm})
        run(s, [at = &ran[static_cast<std::size_t>(i)]] { ++*at; }), ++i;
    }
    graph = capture.end();
  }
  EXPECT_EQ(graph->nodes(), 24);
  run(device(3).comm, [] {});
  Event last = launch(*graph);
  shmap_sim::record_calls(true);
  for (int i = 0; i < 99; ++i) last = launch(*graph);
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 99);
  EXPECT_EQ(calls_of("cudaStreamWaitEvent"), 0);
  // The first task of a stream after it passes the gate, the second does not.
  std::int64_t seen = 0;
  run(device(5).compute, [&] { seen = ran[3]; });
  EXPECT_EQ(calls_of("cudaStreamWaitEvent"), 1);
  run(device(5).compute, [] {}).wait();
  EXPECT_EQ(calls_of("cudaStreamWaitEvent"), 1);
  EXPECT_EQ(seen, 100);
  shmap_sim::record_calls(true);
  launch(*graph).wait();  // waits for the one stream that had work
  EXPECT_LE(calls_of("cudaStreamWaitEvent"), 1);
  for (std::int64_t n : ran) EXPECT_EQ(n, 101);
}

TEST_F(CudaDeviceLayer, TenThousandReplaysDoNotGrow) {
  open("cuda:0x8");
  std::int64_t ran = 0;
  CaptureScope capture(*backend);
  const Event e = run(device(0).compute, [&] { ++ran; });
  run(device(1).comm, [] {}, {e});
  const Ref<Graph> graph = capture.end();
  const auto some = [&](int n) {
    for (int i = 0; i < n; ++i) {
      Event last = launch(*graph);
      if (i % 16 == 0) last.wait();
      run(device(static_cast<std::size_t>(i) % 8).compute, [] {}, {last});
    }
    backend->synchronize();
  };
  some(3'000);
  const shmap_sim::Counts before = shmap_sim::counts();
  some(10'000);
  const shmap_sim::Counts after = shmap_sim::counts();
  EXPECT_EQ(ran, 13'000);
  EXPECT_LE(after.events, before.events + 1000);  // one a replay would be 10,000
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.pinned, before.pinned);
  EXPECT_EQ(after.pending, 0u);
}

// --------------------------------------------------------------------------------------- graphs

TEST_F(CudaDeviceLayer, AGraphKeepsWhatItsTasksRead) {
  open("cuda:0x2");
  static std::atomic<int> alive;
  struct Counted {
    Counted() { ++alive; }
    Counted(const Counted&) { ++alive; }
    ~Counted() { --alive; }
  };
  alive = 0;
  Ref<Graph> graph;
  Event last;
  {
    CaptureScope capture(*backend);
    run(device().compute, [c = Counted()] {});
    graph = capture.end();
  }
  EXPECT_GT(alive.load(), 0);
  for (int i = 0; i < 5; ++i) last = launch(*graph);
  graph.reset();  // while they are pending
  last.wait();
  EXPECT_EQ(alive.load(), 0);
}

TEST_F(CudaDeviceLayer, WhatATaskThrowsUnderCaptureEndsIt) {
  open("cuda:0x2");
  {
    CaptureScope capture(*backend);
    run(device().compute, [] {});
    Stream* streams[] = {device().compute};
    EXPECT_THROW(host(streams, [](const TaskContext&) { throw ValueError("no kernel"); }),
                 ValueError);
  }
  EXPECT_FALSE(capturing());
  EXPECT_NO_THROW(backend->synchronize());  // the caller has seen it
  int ran = 0;
  run(device().compute, [&] { ++ran; }).wait();
  EXPECT_EQ(ran, 1);
}

TEST_F(CudaDeviceLayer, ALaunchThatFailsFailsItsEvent) {
  open("cuda:0x2");
  CaptureScope capture(*backend);
  run(device().compute, [] {});
  const Ref<Graph> graph = capture.end();
  shmap_sim::inject("cudaGraphLaunch", cudaErrorInvalidValue);
  const Event bad = launch(*graph);
  EXPECT_THAT(text_of<DeviceError>([&] { bad.wait(); }), HasSubstr("cudaGraphLaunch failed"));
  EXPECT_NO_THROW(launch(*graph).wait());
}

TEST_F(CudaDeviceLayer, MembersOfAGroupHaveTheirOwnStreams) {
  open("cuda:0x4");
  for (const bool captured : {false, true}) {
    std::vector<int> order;
    Stream* streams[] = {device(0).comm, device(1).comm, device(2).comm};
    Ref<Graph> graph;
    const auto program = [&] {
      run(device(1).comm, [&] { order.push_back(1); });
      host(streams, [&](const TaskContext& c) {
        EXPECT_EQ(native_in_group(*streams[0]), c.native);
        auto at = [&](int i) { return native_in_group(*streams[i]); };
        EXPECT_NE(at(1), at(0));
        shmap_sim::enqueue(at(1), "member", [&] { order.push_back(2); });
      });
      run(device(2).comm, [&] { order.push_back(3); });  // after all of the group
    };
    if (captured) {
      CaptureScope capture(*backend);
      program();
      graph = capture.end();
      EXPECT_EQ(graph->nodes(), 3);
      launch(*graph).wait();
    } else {
      program();
    }
    backend->synchronize();
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  }
  EXPECT_THROW(native_in_group(*device().comm), Error);
}

// --------------------------------------------------------------------------------------- memory

TEST_F(CudaDeviceLayer, MemoryOfPendingTasksIsHandedOutToTasks) {
  open("cuda:0x2");
  MemorySpace& space = *device().space;
  int ran = 0;
  const auto pending = [&](Stream* stream, std::int64_t bytes) {
    BufferRef b = space.allocate(bytes, MemorySpace::For::tasks);
    b->def() = run(stream, [&] { ++ran; });
    return b->data();
  };
  void* const freed = pending(device().compute, 1000);
  const BufferRef for_host = space.allocate(1000);     // the host may write it at once
  EXPECT_TRUE(for_host->data() != freed || ran == 1);  // or it is done by now
  EXPECT_TRUE(for_host->quiet());
  const BufferRef next = space.allocate(1000, MemorySpace::For::tasks);
  if (ran == 0) {
    EXPECT_EQ(next->data(), freed);
    EXPECT_EQ(next->uses().size(), 1u);
  }
  EXPECT_TRUE(next->def().done());
  EXPECT_EQ(space.pending_bytes(), 0);
  // Memory that a copy between devices reads is not reused while there is other memory.
  void* const moved = pending(device().comm, 5000);
  const BufferRef other = space.allocate(5000, MemorySpace::For::tasks);
  EXPECT_TRUE(other->data() != moved || ran == 2);
  backend->synchronize();
  EXPECT_EQ(ran, 2);
}

TEST_F(CudaDeviceLayer, RunningAheadOfTheDeviceStaysInBounds) {
  constexpr std::int64_t kMiB = 1 << 20;
  open("cuda:0x2", 64 * kMiB);
  MemorySpace& space = *device().space;
  Event last;
  for (int i = 0; i < 500; ++i) {
    const BufferRef b = space.allocate(16 * kMiB, MemorySpace::For::tasks);
    std::vector<Event> waits(b->uses().begin(), b->uses().end());
    waits.push_back(last);
    last = run(
        i % 2 == 0 ? device().comm : device(1).comm, [] {}, waits);
    b->clear_uses();
    b->def() = last;
  }
  EXPECT_LE(space.peak_bytes(), 64 * kMiB);
  backend->synchronize();
}

TEST_F(CudaDeviceLayer, OutOfMemoryOfTheGpuLetsOneGoOn) {
  open("cuda:0x2");
  MemorySpace& space = *device().space;
  constexpr std::int64_t kTooMuch = std::int64_t{1} << 40;
  const std::string text = text_of<OutOfMemory>([&] { space.allocate(kTooMuch); });
  EXPECT_THAT(text, AllOf(HasSubstr("CudaDevice(id=0..1)"), HasSubstr("1.0 TiB"),
                          HasSubstr("the system has no more memory")));
  // A hiccup of the driver's is met by giving back what is cached.
  { const BufferRef cached = space.allocate(1 << 20); }
  shmap_sim::inject("cudaMalloc", cudaErrorMemoryAllocation);
  EXPECT_NO_THROW(space.allocate(3 << 20));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  int ran = 0;
  run(device().compute, [&] { ++ran; }).wait();
  EXPECT_EQ(ran, 1);
}

TEST_F(CudaDeviceLayer, HostCopiesComeInPieces) {
  open("cuda:0x2");
  for (std::int64_t bytes : {0, 1, 4097, 2 << 20, (9 << 20) + 3}) {
    const BufferRef b = device().space->allocate(bytes);
    std::vector<unsigned char> out(static_cast<std::size_t>(bytes)), in(out.size(), 7);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(i * 13 >> 3);
    host_to_device(b->data(), out.data(), bytes);
    device_to_host(in.data(), b->data(), bytes);
    EXPECT_EQ(out, in);
  }
}

TEST_F(CudaDeviceLayer, ReadersSeeTheValuesOfTheirTurn) {
  open("cuda:0x2");
  struct Reader final : HostReader {
    mutable std::vector<int> seen;
    bool throws = false;
    void read(std::span<const void* const> values) const override {
      if (throws) throw ValueError("unreadable");
      seen.push_back(*static_cast<const int*>(values[0]) * 10 +
                     *static_cast<const int*>(values[1]));
    }
  };
  const BufferRef b = device().space->allocate(8);
  auto* at = static_cast<int*>(b->data());
  const int begin[] = {1, 2};
  host_to_device(at, begin, 8);
  const auto reader = make_ref<Reader>();
  const HostRead reads[] = {{at, 4}, {at + 1, 4}};
  Stream* streams[] = {device().comm};
  const auto read = [&](std::vector<Event> waits = {}) {
    return host(
        streams,
        [&](const TaskContext& c) { read_on_host(reads, Ref<HostReader>(reader.get()), c.native); },
        std::move(waits));
  };
  read().wait();
  {
    CaptureScope capture(*backend);
    const Event e = run(device().compute, [at] { ++at[0]; });
    read({e});
    const Ref<Graph> graph = capture.end();
    for (int i = 0; i < 3; ++i) launch(*graph);
    backend->synchronize();
  }
  EXPECT_EQ(reader->seen, (std::vector<int>{12, 22, 32, 42}));
  reader->throws = true;
  read();
  EXPECT_THROW(backend->synchronize(), ValueError);
  EXPECT_NO_THROW(backend->synchronize());
}

TEST_F(CudaDeviceLayer, TheTimelineHasTheTasksOfStreamsAndGraphs) {
  open("cuda:0x4");
  run(device().compute, [] {}).wait();
  TimelineRecorder recorder;
  std::optional<test::TimelineScope> recording;
  recording.emplace(recorder, *backend);
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
  const std::int64_t begin = timeline_now();
  run(device(2).comm, nap, {}, "eager");
  Ref<Graph> graph;
  {
    CaptureScope capture(*backend);
    const Event e = run(device(0).compute, nap, {}, "first");
    run(device(1).comm, nap, {e}, "second");
    graph = capture.end();
  }
  for (int i = 0; i < 3; ++i) launch(*graph);
  backend->synchronize();
  recording.reset();
  constexpr std::int64_t kSlack = 5'000'000;  // of the two clocks
  const std::int64_t end = timeline_now() + kSlack;
  std::int64_t last_end = 0;
  std::map<std::string, int> seen;
  for (const TimelineEvent& e : recorder.take()) {
    ++seen[e.name];
    EXPECT_GE(e.begin_ns, begin - kSlack);
    EXPECT_LE(e.end_ns, end);
    EXPECT_GE(e.end_ns - e.begin_ns, 150'000);
    if (std::string_view(e.name) == "second") {
      EXPECT_EQ(e.device, 1);
      EXPECT_EQ(e.role, StreamRole::comm);
      EXPECT_GE(e.begin_ns, last_end - 1000);  // rounding of the runtime's milliseconds
    }
    last_end = e.end_ns;
  }
  EXPECT_EQ(seen, (std::map<std::string, int>{{"eager", 1}, {"first", 3}, {"second", 3}}));
}

// --------------------------------------------------------------------------------------- errors

TEST_F(CudaDeviceLayer, AnErrorOfOneCallIsThatTasksAlone) {
  open("cuda:0x2");
  shmap_sim::inject("cudaMemsetAsync", cudaErrorInvalidValue);
  Stream* streams[] = {device().compute};
  const BufferRef x = device().space->allocate(64);
  const auto clear = [&](const TaskContext& c) {
    // A task that does not look at what it is answered.
    (void)cudaMemsetAsync(x->data(), 0, 64, static_cast<cudaStream_t>(c.native));
  };
  const Event bad = host(streams, clear);
  EXPECT_THAT(text_of<DeviceError>([&] { bad.wait(); }),
              AllOf(HasSubstr("'host'"), HasSubstr("cudaErrorInvalidValue")));
  EXPECT_NO_THROW(host(streams, clear).wait());
  EXPECT_NO_THROW(backend->synchronize());
}

// Those after which, by CUDA's headers, a process must be started again.
TEST(CudaErrors, LoseTheGpu) {
  for (const int code : {226, 700, 702, 716, 719, 721, 810})
    EXPECT_TRUE(is_sticky(static_cast<cudaError_t>(code))) << code;
  for (const int code : {1, 2, 600, 704, 900})
    EXPECT_FALSE(is_sticky(static_cast<cudaError_t>(code))) << code;
}

// The last one: this process has no GPU after it.
TEST_F(CudaDeviceLayer, ALostGpuFailsEveryCallAtOnceAndNothingElse) {
  open("cuda:0x2");
  const BufferRef x = device().space->allocate(64);
  Ref<Graph> graph;
  {
    CaptureScope capture(*backend);
    run(device(1).compute, [] {});
    graph = capture.end();
  }
  shmap_sim::inject_kernel_fault("wild");
  const Event good = run(
      device(1).compute, [] {}, {}, "fine");
  good.wait();
  const Event bad = run(
      device().compute, [] {}, {}, "wild");
  const Event after = run(
      device(1).comm, [] {}, {bad}, "later");
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(text_of<DeviceError>([&] { after.wait(); }),
                AllOf(HasSubstr("lost to this process"), HasSubstr("cudaErrorIllegalAddress"),
                      HasSubstr("'wild' of local device 0, compute"), Not(HasSubstr("'fine'")),
                      HasSubstr("compute-sanitizer")));
  }
  EXPECT_TRUE(bad.failed());
  EXPECT_NO_THROW(good.wait());
  shmap_sim::record_calls(true);
  EXPECT_THAT(text_of<DeviceError>([&] {
                run(
                    device().compute, [] {}, {}, "next");
              }),
              AllOf(HasSubstr("next: "), HasSubstr("lost to this process")));
  EXPECT_THROW(launch(*graph), DeviceError);
  EXPECT_THROW(backend->begin_capture(), DeviceError);
  EXPECT_THROW(backend->synchronize(), DeviceError);
  EXPECT_THAT(shmap_sim::calls(), ::testing::IsEmpty());  // none of them went as far as the driver
  EXPECT_THROW(host_to_device(x->data(), &bad, 8), DeviceError);
}

}  // namespace
}  // namespace shmap::cuda
