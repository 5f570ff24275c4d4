// Rules of real drivers that the device layer follows: contexts of threads, the current GPU, first
// uses and frees under capture; and the ways in which the host waits.
#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/device/timeline.h"
#include "cuda/backend/backend.h"
#include "cuda/backend/stream.h"
#include "cuda/device/running_task.h"
#include "cuda/driver/gpus.h"
#include "cuda/kernels/matmul/cublaslt_gemm.h"
#include "cuda_sim.h"
#include "tests/support/timeline_scope.h"

namespace shmap::cuda {
namespace {

std::int64_t calls_of(const std::string& function) {
  const std::vector<std::string> all = shmap_sim::calls();
  return std::count_if(all.begin(), all.end(),
                       [&](const std::string& call) { return call.rfind(function, 0) == 0; });
}

class DriverRules : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("SHMAP_SIM_GPUS", "2", 1);
    shmap_sim::reset();
  }
  void open(const std::string& devices) {
    backend = std::make_unique<CudaBackend>(DeviceSpec::parse(devices), 0, 0, -1);
  }
  void TearDown() override {
    shmap_sim::record_calls(false);
    unsetenv("SHMAP_SIM_LT_WORKSPACE");
    backend.reset();
  }
  const LocalDevice& device(std::size_t i = 0) const { return backend->devices()[i]; }
  // A task that is host code when it is enqueued.
  template <class F>
  Event host(Stream* stream, F f) {
    Task task;
    task.name = "host";
    task.args = &f;
    task.run = [](void* p, const TaskContext& c) { (*static_cast<F*>(p))(c.native); };
    std::lock_guard lock(backend->submit_mutex());
    return stream->enqueue(task, {});
  }
  Event work(Stream* stream, std::function<void()> work) {
    return host(stream, [&](void* native) {
      shmap_sim::enqueue(static_cast<cudaStream_t>(native), "work", work);
    });
  }
  // c = a · b, with numbers that are the same in each row.
  struct Product {
    BufferRef memory;
    LtGemm gemm;
    explicit Product(MemorySpace& space) : memory(space.allocate(3 * 16 * 16 * 4)) {
      gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = 16;
      auto* at = static_cast<float*>(memory->data());
      std::fill(at, at + 512, 2.f);
      gemm.a = at;
      gemm.b = at + 256;
      gemm.c = at + 512;
    }
    float result() const { return static_cast<const float*>(gemm.c)[37]; }
  };
  std::unique_ptr<CudaBackend> backend;
};

// --------------------------------------------------------------------------- first uses, captures

// The first of them: what the library loads at first use is loaded once a process.
TEST_F(DriverRules, AProductMayBeFirstMetInACapture) {
  open("cuda:0x1");
  Product product(*device().space);
  Ref<Graph> graph;
  {
    CaptureScope capture(*backend);
    host(device().compute, [&](void* native) { cublaslt_gemm(product.gemm, native); });
    graph = capture.end();
  }
  {
    std::lock_guard lock(backend->submit_mutex());
    graph->launch();
  }
  backend->synchronize();
  EXPECT_EQ(product.result(), 64);
}

TEST_F(DriverRules, AGraphGoesWhileItsThreadCapturesAnother) {
  setenv("SHMAP_SIM_LT_WORKSPACE", "1", 1);
  open("cuda:0x1");
  Product product(*device().space);
  product.gemm.k = 8;  // a problem of its own: its algorithm wants a workspace
  Ref<Graph> first;
  const std::uint64_t before = shmap_sim::counts().allocations;
  {
    CaptureScope capture(*backend);
    host(device().compute, [&](void* native) { cublaslt_gemm(product.gemm, native); });
    first = capture.end();
  }
  EXPECT_EQ(shmap_sim::counts().allocations, before + 1);
  int ran = 0;
  Ref<Graph> second;
  {
    CaptureScope capture(*backend);
    work(device().compute, [&] { ++ran; });
    first.reset();
    work(device().compute, [&] { ++ran; });
    second = capture.end();
  }
  EXPECT_EQ(shmap_sim::counts().allocations, before);
  {
    std::lock_guard lock(backend->submit_mutex());
    second->launch();
  }
  backend->synchronize();
  EXPECT_EQ(ran, 2);
}

// -------------------------------------------------------------------------------------- contexts

TEST_F(DriverRules, AThreadHasNoContextBeforeItChoosesAGpu) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  ASSERT_EQ(cudaGetDriverEntryPoint("cuModuleLoadData", &entry, cudaEnableDefault, &found),
            cudaSuccess);
  const auto load = reinterpret_cast<decltype(&cuModuleLoadData)>(entry);
  std::thread([&] {
    CUmodule module = nullptr;
    int gpu = -1;
    EXPECT_EQ(cudaGetDevice(&gpu), cudaSuccess);
    EXPECT_EQ(gpu, 0);  // and yet
    EXPECT_EQ(static_cast<int>(load(&module, "/no/such/image.so")), 201);
    {
      const GpuScope scope(0);  // is current already
    }
    EXPECT_EQ(load(&module, "/no/such/image.so"), CUDA_ERROR_INVALID_IMAGE);
  }).join();
}

TEST_F(DriverRules, AFusedKernelMayBeTheFirstThingOfAThread) {
  const auto f = [](Array x) { return tanh(x * 2.f + 1.f) * x; };
  const Array x = arange(64, f32).block_until_ready();
  const std::vector<float> want = jit(f)(x).to_vector<float>();
  auto again = jit(f);  // is not captured before its second call
  Array got;
  shmap_sim::record_calls(true);
  std::thread([&] { got = again(x); }).join();
  EXPECT_EQ(calls_of("cuLaunchKernelEx"), 1);
  shmap_sim::record_calls(false);
  EXPECT_EQ(got.to_vector<float>(), want);
}

// --------------------------------------------------------------------------------- current GPU

TEST_F(DriverRules, OnlyCopiesGoToStreamsOfAnotherGpu) {
  const GpuScope one(1);
  cudaStream_t stream = nullptr;
  int* x = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&x), 8), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(x, 0, 8, stream), cudaSuccess);
  {
    const GpuScope zero(0);
    EXPECT_EQ(cudaMemsetAsync(x, 0, 8, stream), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaMemcpyAsync(x, x + 1, 4, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  cudaGetLastError();
}

TEST_F(DriverRules, AGraphOfSeveralGpusIsTakenWhereTheDriverTakesIt) {
  // What a captured task is told.
  const auto in_graph_of_one_gpu = [&] {
    bool of_one_gpu = false;
    open("cuda");
    EXPECT_EQ(backend->devices().size(), 2u);
    const CaptureScope capture(*backend);
    host(device().compute, [&](void*) { of_one_gpu = captures_graph_of_one_gpu(); });
    return of_one_gpu;
  };
  EXPECT_FALSE(in_graph_of_one_gpu());
  backend.reset();
  setenv("SHMAP_SIM_GRAPHS", "one_gpu", 1);  // a driver that does not take it
  shmap_sim::reset();
  EXPECT_TRUE(in_graph_of_one_gpu());
  backend.reset();
  unsetenv("SHMAP_SIM_GRAPHS");
  shmap_sim::reset();
  EXPECT_FALSE(captures_graph_of_one_gpu());  // outside of tasks
}

// ----------------------------------------------------------------------------------------- waits

TEST_F(DriverRules, AWaitOfMillisecondsDoesNotSleep) {
  open("cuda:0x1");
  constexpr auto kWork = std::chrono::milliseconds(15);
  std::atomic<bool> runs{false};
  const Event e = work(device().compute, [&] {
    runs = true;
    std::this_thread::sleep_for(kWork);
  });
  std::thread worker([&] { e.wait(); });  // the simulator's work is done by who waits first
  while (!runs) std::this_thread::yield();
  const auto sleeps = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  const auto before = sleeps();
  e.wait();
  EXPECT_LT(sleeps() - before, 60);  // of 70 microseconds each they would be 200
  worker.join();
}

TEST_F(DriverRules, TimesAreTakenFromARecentBase) {
  open("cuda:0x1");
  TimelineRecorder recorder;
  test::TimelineScope recording(recorder, *backend);
  const auto one = [&] { work(device().compute, [] {}).wait(); };
  one();
  shmap_sim::record_calls(true);
  one();
  EXPECT_EQ(calls_of("cudaEventSynchronize"), 0);
  backend->spans().set_base_ns(0);
  const std::int64_t begin = timeline_now();
  one();
  one();
  EXPECT_EQ(calls_of("cudaEventSynchronize"), 2);
  backend->synchronize();
  const std::vector<TimelineEvent> events = recorder.take();
  ASSERT_EQ(events.size(), 4u);
  constexpr std::int64_t kSlack = 50'000'000;
  for (std::size_t i = 2; i < 4; ++i) {
    EXPECT_GE(events[i].begin_ns, begin - kSlack);
    EXPECT_LE(events[i].end_ns, timeline_now() + kSlack);
  }
}

// The last one: from it on a thread runs the simulator's work.
TEST_F(DriverRules, TimesOfTasksThatStillRunAreTakenLater) {
  open("cuda:0x1");
  TimelineRecorder recorder;
  test::TimelineScope recording(recorder, *backend);
  std::atomic<bool> may_end{false};
  const Event e = host(device().compute, [&](void* native) {
    shmap_sim::enqueue_when(
        static_cast<cudaStream_t>(native), "work", [&] { return may_end.load(); }, [] {});
  });
  backend->spans().deliver();
  EXPECT_TRUE(recorder.take().empty());
  may_end = true;
  e.wait();
  backend->synchronize();
  EXPECT_EQ(recorder.take().size(), 1u);
}

}  // namespace
}  // namespace shmap::cuda
