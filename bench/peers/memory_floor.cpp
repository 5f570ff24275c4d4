// The cost of the memory alone, as a peer of ppermute between memory spaces: 8 buffers are copied
// to 8 others, which are reused, by one memcpy after another or by two threads with four each.
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "bench/support/data.h"
#include "bench/support/rows.h"

namespace {

using shmap::bench::Row;
using shmap::bench::Work;

constexpr std::size_t kDevices = 8;

// A helper thread that spins for a while and then sleeps, as the library's own workers do.
class Helper {
 public:
  Helper() : thread_([this] { loop(); }) {}
  ~Helper() {
    stop_ = true;
    start(nullptr, nullptr, 0);
    thread_.join();
  }
  void start(const std::vector<float>* from, std::vector<float>* to, std::size_t count) {
    from_ = from;
    to_ = to;
    count_ = count;
    ticket_.fetch_add(1);
    ticket_.notify_one();
  }
  void wait() const {
    while (done_.load() != ticket_.load()) {
    }
  }

 private:
  void loop() {
    for (int seen = 0; !stop_;) {
      for (int spin = 0; spin < 20000 && ticket_.load() == seen; ++spin) {
      }
      ticket_.wait(seen);
      seen = ticket_.load();
      for (std::size_t d = 0; d < count_; ++d)
        std::memcpy(to_[d].data(), from_[d].data(), from_[d].size() * sizeof(float));
      done_.store(seen);
    }
  }
  const std::vector<float>* from_ = nullptr;
  std::vector<float>* to_ = nullptr;
  std::size_t count_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> ticket_ = 0, done_ = 0;
  std::thread thread_;
};

struct Buffers {
  explicit Buffers(std::size_t bytes) {
    for (std::size_t d = 0; d < kDevices; ++d) {
      from.push_back(shmap::bench::random_floats(bytes / sizeof(float), d));
      to.emplace_back(bytes / sizeof(float));
    }
  }
  std::vector<std::vector<float>> from, to;
};

std::string check(const Buffers& b) {
  for (std::size_t d = 0; d < kDevices; ++d) {
    std::string fault = shmap::bench::difference(b.to[d], std::span<const float>(b.from[d]));
    if (!fault.empty()) return fault;
  }
  return {};
}

Work copies(std::size_t bytes, bool two_threads) {
  auto b = std::make_shared<Buffers>(bytes);
  auto helper = two_threads ? std::make_shared<Helper>() : nullptr;
  auto call = [b, helper] {
    std::size_t mine = helper ? kDevices / 2 : kDevices;
    if (helper) helper->start(&b->from[mine], &b->to[mine], kDevices - mine);
    for (std::size_t d = 0; d < mine; ++d)
      std::memcpy(b->to[d].data(), b->from[d].data(), b->from[d].size() * sizeof(float));
    if (helper) helper->wait();
  };
  return {call, [b] { return check(*b); }, {}};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Row> rows;
  const std::pair<const char*, std::size_t> sizes[] = {
      {"1kb", 1 << 10}, {"1mb", 1 << 20}, {"16mb", 16 << 20}};
  for (auto [size, bytes] : sizes) {
    for (bool two : {false, true}) {
      rows.push_back({std::string("memcpy_") + size + (two ? ":two_threads" : ":one_thread"),
                      {.bytes = double(bytes)},
                      [bytes = bytes, two] { return copies(bytes, two); }});
    }
  }
  return shmap::bench::bench_main(argc, argv, "memory_floor", rows);
}
