// Measurements that are made once per process, for `scripts/bench_vs_peers`. Runs on `cpu:8` unless
// SHMAP_DEVICES says otherwise.
//
//   --replicated      prints by how many bytes the process grows for a replicated argument of
//                     64 MiB a device
//   --queued N        queues N calls of a shard_map without waiting; prints µs a call, and by how
//                     many bytes the resident memory grew at its peak
//   --queued-jit N    the same under jit
//   --first           runs jit of a shard_map once; the caller times the whole process
#include <shmap/shmap.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/support/data.h"

namespace {

using namespace shmap;

constexpr std::size_t kDevices = 8;

Mesh ring_mesh() { return make_mesh({kDevices}, {"i"}); }

Array on_mesh(const std::vector<float>& values, const P& spec) {
  return device_put(array<float>(values, {values.size()}), NamedSharding(ring_mesh(), spec));
}

auto mapped_sum() {
  return shard_map([](Array x) { return psum(x, "i"); }, ring_mesh(), P("i"), P());
}

std::vector<double> sum_of_blocks(const std::vector<float>& values) {
  std::vector<double> sum(values.size() / kDevices, 0.0);
  for (std::size_t k = 0; k < values.size(); ++k) sum[k % sum.size()] += values[k];
  return sum;
}

std::int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long long total = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%lld %lld", &total, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

int wrong(const std::string& what) {
  std::printf("#wrong %s\n", what.c_str());
  return 1;
}

int replicated_argument() {
  auto f = shard_map([](Array x) { return x[range(0, 1)] + 0.f; }, ring_mesh(), P(), P());
  f(on_mesh(bench::random_floats(1024, 1), P())).block_until_ready();
  std::vector<float> values = bench::random_floats(std::size_t{16} << 20, 2);
  std::int64_t before = resident_bytes();
  Array x = on_mesh(values, P());
  Array y = f(x);
  y.block_until_ready();
  std::int64_t grown = resident_bytes() - before;
  std::string fault = bench::difference(x.addressable_shards().back().data.to_vector<float>(),
                                        std::span<const float>(values));
  if (!fault.empty() || y.to_vector<float>() != std::vector<float>{values[0]})
    return wrong("replicated argument: " + fault);
  std::printf("%lld\n", static_cast<long long>(grown));
  return 0;
}

template <class F>
int queued_calls(F f, long count) {
  std::vector<float> values = bench::random_floats(kDevices * 1024, 1);
  Array x = on_mesh(values, P("i"));
  Array y = f(x);
  y.block_until_ready();
  std::int64_t before = resident_bytes(), peak = before;
  auto start = std::chrono::steady_clock::now();
  for (long k = 0; k < count; ++k) {
    y = f(x);
    if (k % 1000 == 999) peak = std::max(peak, resident_bytes());
  }
  y.block_until_ready();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  peak = std::max(peak, resident_bytes());
  std::string fault = bench::difference(y.to_vector<float>(), sum_of_blocks(values), 1e-5);
  if (!fault.empty()) return wrong("queued calls: " + fault);
  std::printf("%.4f %lld\n", seconds / double(count) * 1e6, static_cast<long long>(peak - before));
  return 0;
}

int first_result() {
  std::vector<float> values = bench::random_floats(kDevices * 256, 1);
  auto f = jit(mapped_sum());
  std::vector<float> got = f(on_mesh(values, P("i"))).to_vector<float>();
  std::string fault = bench::difference(got, sum_of_blocks(values), 1e-5);
  return fault.empty() ? 0 : wrong("first result: " + fault);
}

}  // namespace

int main(int argc, char** argv) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  init(argc, argv, {.devices = devices == nullptr ? "cpu:8" : devices});
  std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--replicated") return replicated_argument();
  if (mode == "--first") return first_result();
  const long count = argc > 2 ? std::atol(argv[2]) : 0;
  if (mode == "--queued" && count > 0) return queued_calls(mapped_sum(), count);
  if (mode == "--queued-jit" && count > 0) return queued_calls(jit(mapped_sum()), count);
  std::fprintf(stderr, "usage: once_bench --replicated | --queued N | --queued-jit N | --first\n");
  return 2;
}
