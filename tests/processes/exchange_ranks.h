// Ranks of Exchanges as threads of one process: each acts as a process of a job, through memory
// that they map, or through messages alone. So a thread sanitizer sees all that the threads of
// Exchanges share, without a library for message passing.
#pragma once
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/processes/exchanges.h"
#include "core/processes/node_link.h"
#include "core/processes/peers.h"
#include "core/processes/process_exchange.h"
#include "tests/processes/thread_messages.h"

namespace shmap::test {

// A thread that acts as a process.
struct Rank {
  std::unique_ptr<ThreadMessages> messages;
  std::unique_ptr<Peers> peers;
  std::unique_ptr<NodeLink> link;
  Exchanges* exchanges = nullptr;
};

// Calls f(r) for each rank, on a thread of its own.
inline void in_each(int ranks, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&f, r] { f(r); });
  for (std::thread& thread : threads) thread.join();
}

struct Form {
  int ranks;
  NodeLink::Carries carries;
  bool crowded;  // all ranks are said to share a core
};

class ExchangesTest : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    const Form form = GetParam();
    job_ = jobs().emplace_back(std::make_unique<Job>(form.ranks)).get();
    std::vector<PeerCard> cards(static_cast<std::size_t>(form.ranks), PeerCard::of_this_process());
    for (int r = 0; r < form.ranks; ++r) {
      cpu_set_t& cores = cards[static_cast<std::size_t>(r)].cores;
      CPU_ZERO(&cores);
      CPU_SET(form.crowded ? 0 : r, &cores);
    }
    in_each(form.ranks, [&](int r) {
      Rank& rank = at(r);
      rank.messages = std::make_unique<ThreadMessages>(job_->mail, r);
      rank.peers = std::make_unique<Peers>(r, cards);
      rank.link = NodeLink::make(*rank.messages, *rank.peers, form.carries);
      rank.exchanges = new Exchanges(*rank.messages, *rank.peers, rank.link.get(), warn_sec_, 120);
    });
    EXPECT_EQ(at(0).link != nullptr, form.carries != NodeLink::Carries::nothing);
    EXPECT_EQ(at(0).peers->crowded(), form.crowded);
  }
  void TearDown() override {
    for (Rank& rank : job_->ranks) rank.exchanges->stop();
  }

  Rank& at(int r) { return job_->ranks[static_cast<std::size_t>(r)]; }
  ThreadMail& mail() { return job_->mail; }
  int size() const { return static_cast<int>(job_->ranks.size()); }
  double warn_sec_ = 0;

 private:
  struct Job {
    explicit Job(int size) : mail(size), ranks(static_cast<std::size_t>(size)) {}
    ThreadMail mail;
    std::vector<Rank> ranks;
  };
  // All live until the process has ended.
  static std::vector<std::unique_ptr<Job>>& jobs() {
    static auto* all = new std::vector<std::unique_ptr<Job>>();
    return *all;
  }
  Job* job_ = nullptr;
};

// The sum of what the others send and of this rank's own block.
struct Sum final : ParcelWork {
  std::vector<std::int32_t> own;
  std::size_t receives = 0;
  mutable std::vector<std::int32_t> result;
  int parts() const noexcept override { return 2; }
  void run(int part, const std::byte* const* parcels) const override {
    const std::size_t n = own.size(), first = part == 0 ? 0 : n / 2, last = part == 0 ? n / 2 : n;
    for (std::size_t i = first; i < last; ++i) {
      result[i] = own[i];
      for (std::size_t p = 0; p < receives; ++p) {
        std::int32_t v = 0;
        std::memcpy(&v, parcels[p] + i * sizeof v, sizeof v);
        result[i] += v;
      }
    }
  }
};

// Exchanges of `count` integers of one rank with all others, again and again: a gather into
// `gathered`, or (adds) a sum.
class Loop {
 public:
  Loop(int self, int ranks, std::uint64_t space, std::size_t count, bool adds)
      : self_(self),
        count_(count),
        mine_(count),
        gathered_(count * static_cast<std::size_t>(ranks)) {
    exchange_.space = space;
    exchange_.check = count * 2 + adds;
    exchange_.label.set(adds ? "sum" : "gather", "i", "i32", "here.cpp", 7,
                        static_cast<std::int64_t>(bytes()));
    if (adds) {
      sum_ = std::make_shared<Sum>();
      sum_->own = sum_->result = mine_;
      sum_->receives = static_cast<std::size_t>(ranks) - 1;
      exchange_.work = sum_;
    }
    for (int p = 0; p < ranks; ++p) {
      std::int32_t* const to = gathered_.data() + static_cast<std::size_t>(p) * count;
      if (p == self) {
        if (!adds) exchange_.copies.push_back({reinterpret_cast<std::byte*>(to), data(), bytes()});
        continue;
      }
      exchange_.sends.push_back({p, data(), bytes()});
      exchange_.receives.push_back({p, adds ? nullptr : reinterpret_cast<std::byte*>(to), bytes()});
    }
  }

  ProcessExchange& exchange() { return exchange_; }
  // The values of that number; before it is exchanged.
  void fill(std::uint64_t number) {
    exchange_.number = number;
    for (std::size_t i = 0; i < count_; ++i) mine_[i] = value(self_, number, i);
    if (sum_ != nullptr) sum_->own = mine_;
  }
  // How many of that rank's values are wrong after a gather.
  int wrong_of(int rank) const {
    int wrong = 0;
    for (std::size_t i = 0; i < count_; ++i)
      wrong += gathered_[static_cast<std::size_t>(rank) * count_ + i] !=
               value(rank, exchange_.number, i);
    return wrong;
  }
  // How many values are wrong after the exchange.
  int wrong(int ranks) const {
    int wrong = 0;
    for (int p = 0; p < ranks && sum_ == nullptr; ++p) wrong += wrong_of(p);
    for (std::size_t i = 0; i < count_ && sum_ != nullptr; ++i) {
      std::int32_t sum = 0;
      for (int p = 0; p < ranks; ++p) sum += value(p, exchange_.number, i);
      wrong += sum_->result[i] != sum;
    }
    return wrong;
  }

 private:
  std::byte* data() { return reinterpret_cast<std::byte*>(mine_.data()); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(count_ * sizeof(std::int32_t)); }
  static std::int32_t value(int rank, std::uint64_t number, std::size_t i) {
    return static_cast<std::int32_t>(number * 1000 + i) + rank * 100'000;
  }
  const int self_;
  const std::size_t count_;
  std::vector<std::int32_t> mine_, gathered_;
  std::shared_ptr<Sum> sum_;
  ProcessExchange exchange_;
};

struct Waiter final : ExchangeEnd {
  std::atomic<bool> done{false};
  std::exception_ptr error;
  void exchanged(std::exception_ptr e) noexcept override {
    error = std::move(e);
    done.store(true, std::memory_order_release);
  }
  // Looks for messages, or only waits, until the exchange has ended.
  void wait(Exchanges& exchanges, bool looks) {
    if (looks) exchanges.looking(detail::Looking::begins);
    while (!done.load(std::memory_order_acquire)) {
      if (looks) exchanges.poke();
      sched_yield();
    }
    if (looks) exchanges.looking(detail::Looking::ends);
    if (error != nullptr) std::rethrow_exception(error);
  }
};

inline std::string name_of(const testing::TestParamInfo<Form>& info) {
  const Form& form = info.param;
  return std::string(form.carries == NodeLink::Carries::nothing ? "Mpi" : "Memory") +
         std::to_string(form.ranks) + (form.crowded ? "Crowded" : "");
}

inline const auto kExchangeForms = testing::Values(Form{2, NodeLink::Carries::messages, false},
                                                   Form{3, NodeLink::Carries::messages, true},
                                                   Form{3, NodeLink::Carries::nothing, false});

}  // namespace shmap::test
