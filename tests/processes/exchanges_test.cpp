// Exchanges between threads of one process that each act as a process of a job: through memory that
// they map, and through messages alone. So a thread sanitizer sees all that the threads of
// Exchanges share, without a library for message passing.
#include "core/processes/exchanges.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/warning.h"
#include "core/processes/node_link.h"
#include "core/processes/peers.h"
#include "core/processes/process_exchange.h"
#include "core/processes/warn_aside.h"
#include "shmap/error.h"
#include "tests/processes/exchange_ranks.h"
#include "tests/processes/thread_messages.h"

namespace shmap::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kCounts[] = {2, 10, 1000, 20'000};  // 8 and 40 bytes, 4 and 80 KB

TEST_P(ExchangesTest, OfSeveralThreadsAndSizesHaveTheRightValues) {
  constexpr std::uint64_t kNumbers = 60;
  std::atomic<int> wrong{0}, at_once{0};
  in_each(size(), [&](int r) {
    Exchanges& exchanges = *at(r).exchanges;
    // Each of three threads exchanges for a mesh of its own, by all ways.
    in_each(3, [&](int thread) {
      std::vector<std::unique_ptr<Loop>> loops;
      std::vector<std::shared_ptr<Exchanges::Attempt>> attempts;
      for (const std::size_t count : kCounts) {
        for (const bool adds : {false, true}) {
          loops.push_back(std::make_unique<Loop>(r, size(), 100 + thread, count, adds));
          attempts.push_back(exchanges.prepare(loops.back()->exchange()));
        }
      }
      for (std::uint64_t number = 0; number < kNumbers; ++number) {
        const std::size_t which = number % loops.size();
        Loop& loop = *loops[which];
        loop.fill(number);
        Exchanges::Attempt* attempt = attempts[which].get();
        if (attempt != nullptr && number % 3 != 0) {
          if (exchanges.attempt(loop.exchange(), *attempt)) {
            ++at_once;
            wrong += loop.wrong(size());
            continue;
          }
        } else {
          attempt = nullptr;
        }
        if (attempt == nullptr && number % 6 == 0) {
          exchanges.run(loop.exchange());
        } else {
          Waiter waiter;
          exchanges.start(loop.exchange(), waiter, attempt);
          waiter.wait(exchanges, number % 2 == 0);
        }
        wrong += loop.wrong(size());
      }
    });
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(at(0).link != nullptr || at_once == 0);
  std::atomic<int> left{0};
  in_each(size(), [&](int r) { left += at(r).exchanges->leave(); });
  EXPECT_EQ(left, size());
}

TEST_P(ExchangesTest, ASenderThatRunsAheadWaitsForRoom) {
  constexpr std::uint64_t kNumbers = 200;  // of 4 KB: more than a ring holds
  std::atomic<int> wrong{0};
  in_each(size(), [&](int r) {
    Exchanges& exchanges = *at(r).exchanges;
    Loop loop(r, size(), 7, 1000, false);
    // Only rank 0 sends.
    ProcessExchange& exchange = loop.exchange();
    if (r != 0) exchange.sends.clear();
    std::erase_if(exchange.receives, [](const Parcel& parcel) { return parcel.peer != 0; });
    const std::shared_ptr<Exchanges::Attempt> attempt = exchanges.prepare(exchange);
    if (r != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (std::uint64_t number = 0; number < kNumbers; ++number) {
      loop.fill(number);
      if (attempt == nullptr || !exchanges.attempt(exchange, *attempt)) {
        Waiter waiter;
        exchanges.start(exchange, waiter, attempt.get());
        waiter.wait(exchanges, r % 2 == 0);
      }
      wrong += loop.wrong_of(0);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(ExchangesTest, ReportsOfValuesAreComparedInTheirOrder) {
  std::vector<int> all;
  for (int r = 0; r < size(); ++r) all.push_back(r);
  const auto report = [&](int r, std::uint64_t key, std::uint64_t hash) {
    at(r).exchanges->report_value({SameValue::Role::put, 1, key, hash, 0, "the value"}, all);
  };
  // The same in all, in any order between processes and of keys.
  in_each(size(), [&](int r) {
    for (std::uint64_t k = 0; k < 200; ++k)
      report(r, (k + static_cast<std::uint64_t>(r)) % 2, k / 2);
    Loop loop(r, size(), 2, 10, false);
    loop.fill(0);
    at(r).exchanges->run(loop.exchange());
  });
  EXPECT_EQ(at(0).exchanges->fault(), "");
  in_each(size(), [&](int r) { report(r, 3, r == size() - 1 ? 8 : 9); });
  for (int i = 0; i < 10'000 && at(0).exchanges->fault().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THAT(
      at(0).exchanges->fault(),
      AllOf(HasSubstr("place other data"), HasSubstr("the value differs between"),
            HasSubstr("process 0 "), HasSubstr("process " + std::to_string(size() - 1) + " ")));
}

using MeshUse = Exchanges::MeshUse;

TEST_P(ExchangesTest, MeshesThatMayBeMeantAreNoFault) {
  const auto use = [&](int r, std::uint64_t devices, std::uint64_t space, MeshUse how) {
    at(r).exchanges->report_mesh({devices, space, "mesh " + std::to_string(space)}, how, 0);
  };
  in_each(size(), [&](int r) {
    const auto rank = static_cast<std::uint64_t>(r);
    // One that only this process makes.
    use(r, 1, 100 + rank, MeshUse::made);
    // Two, made first and then used in different orders.
    for (const std::uint64_t space : {1, 2}) use(r, 1, space, MeshUse::made);
    for (const std::uint64_t i : {0, 1}) use(r, 1, 1 + (i + rank) % 2, MeshUse::begun);
    // Those of groups of devices, made and used in different orders.
    for (const std::uint64_t i : {0, 1}) {
      const std::uint64_t group = 2 + (i + rank) % 2;
      use(r, group, 10 + group, MeshUse::made);
      use(r, group, 10 + group, MeshUse::begun);
    }
    // One that a process alone has begun to use, so far.
    if (r != 1) use(r, 4, 20, MeshUse::made);
    if (r == 1) use(r, 4, 21, MeshUse::made), use(r, 4, 21, MeshUse::begun);
    Loop loop(r, size(), 3, 10, false);
    loop.fill(0);
    at(r).exchanges->run(loop.exchange());
  });
  EXPECT_EQ(at(0).exchanges->fault(), "");
}

TEST_P(ExchangesTest, UseOfDifferentMeshesOfTheSameDevices) {
  in_each(size(), [&](int r) {
    const std::uint64_t space = r == 1 ? 8 : 9;
    for (const MeshUse use : {MeshUse::made, MeshUse::begun})
      at(r).exchanges->report_mesh({5, space, "mesh " + std::to_string(space)}, use, 0);
  });
  for (int r = 0; r < size(); ++r) {
    for (int i = 0; i < 10'000 && at(r).exchanges->fault().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_THAT(at(r).exchanges->fault(),
                AllOf(HasSubstr("communicate on different meshes"), HasSubstr("process 1 "),
                      HasSubstr("on mesh 8"), HasSubstr("on mesh 9")));
  }
}

// Stderr is a pipe that is full while the object lives, and for five seconds at most.
class FullStderr {
 public:
  FullStderr() : before_(dup(STDERR_FILENO)) {
    if (pipe(ends_) != 0) std::abort();
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    while (write(ends_[1], "-", 1) == 1) ++filled_;
    fcntl(ends_[1], F_SETFL, 0);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
    reader_ = std::thread([this] {
      for (int ms = 0; ms < 5000 && !over_; ++ms)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      char bytes[4096];
      for (ssize_t n; (n = read(ends_[0], bytes, sizeof bytes)) > 0;)
        text_.append(bytes, static_cast<std::size_t>(n));
    });
  }
  // Restores stderr, and returns what was written to it meanwhile.
  std::string text() {
    over_ = true;
    wait_for_warnings();
    dup2(before_, STDERR_FILENO);
    reader_.join();
    close(before_);
    close(ends_[0]);
    return text_.substr(filled_);
  }

 private:
  const int before_;
  int ends_[2]{};
  std::size_t filled_ = 0;
  std::atomic<bool> over_{false};
  std::string text_;
  std::thread reader_;
};

// The warnings of all threads while the object lives.
class Warnings {
 public:
  Warnings() {
    all().clear();
    set_warning_handler([](std::string_view text) noexcept {
      const std::lock_guard lock(mutex());
      all().append(text).append("\n");
    });
  }
  ~Warnings() { set_warning_handler(nullptr); }
  static std::string text() {
    wait_for_warnings();
    const std::lock_guard lock(mutex());
    return all();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::string& all() {
    static std::string text;
    return text;
  }
};

// As MPI may take a long time to find out that a process of another node has died.
TEST_P(ExchangesTest, TheRecordIsWrittenWhileASendDoesNotReturn) {
  if (at(0).link != nullptr) GTEST_SKIP() << "messages go through memory";
  const Warnings warnings;
  mail().stall_sends(true);
  std::vector<std::thread> threads;
  for (int r = 0; r < size(); ++r) {
    threads.emplace_back([&, r] {
      Loop loop(r, size(), 1, 10, false);
      loop.fill(0);
      at(r).exchanges->run(loop.exchange());
      EXPECT_EQ(loop.wrong(size()), 0);
    });
  }
  mail().wait_for_stall();
  for (int r = 0; r < size(); ++r) at(r).exchanges->write_record("why");
  mail().stall_sends(false);
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < size(); ++r) {
    EXPECT_THAT(Warnings::text(),
                HasSubstr("why. process " + std::to_string(r) + ": the collectives"));
  }
  EXPECT_THAT(Warnings::text(), AllOf(HasSubstr("gather of i32"), HasSubstr("waits for process 1"),
                                      HasSubstr("is in a call of MPI")));
  // When nothing is under way, the record takes the mutex.
  at(0).exchanges->write_record("later");
  EXPECT_THAT(Warnings::text(), HasSubstr("later. process 0: the collectives between processes "
                                          "that it ran last:\n  ended, begun"));
}

// A launcher ends the others as soon as a process has died: each names it, whichever of its threads
// is faster.
TEST(ExchangesOfADeadProcess, TheRecordNamesIt) {
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    std::vector<PeerCard> cards(2, PeerCard::of_this_process());
    static auto* const kept = new std::vector<std::unique_ptr<Rank>>();  // as in ExchangesTest
    auto mail = std::make_unique<ThreadMail>(2);
    std::vector<Rank*> ranks;
    for (int r = 0; r < 2; ++r) ranks.push_back(kept->emplace_back(std::make_unique<Rank>()).get());
    in_each(2, [&](int r) {
      Rank& rank = *ranks[static_cast<std::size_t>(r)];
      rank.messages = std::make_unique<ThreadMessages>(*mail, r);
      rank.peers = std::make_unique<Peers>(r, cards);
      rank.link = NodeLink::make(*rank.messages, *rank.peers, NodeLink::Carries::messages);
    });
    cards[1].pid = child;
    Rank& rank = *ranks[0];
    rank.peers = std::make_unique<Peers>(0, cards);
    rank.exchanges = new Exchanges(*rank.messages, *rank.peers, rank.link.get(), 0, 120);
    const Warnings warnings;
    Loop loop(0, 2, 1, 10, false);
    loop.fill(0);
    Waiter waiter;
    rank.exchanges->start(loop.exchange(), waiter);
    kill(child, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    rank.exchanges->write_record("why");
    EXPECT_THAT(Warnings::text(),
                AllOf(HasSubstr("process 1 (pid " + std::to_string(child)),
                      HasSubstr("has died: process 0 waits for it in collective number 0"),
                      Not(HasSubstr("why"))));
    EXPECT_THROW(waiter.wait(*rank.exchanges, false), CollectiveError);
    rank.exchanges->stop();
    waitpid(child, nullptr, 0);
    (void)mail.release();
  }
}

class ExchangesThatWarn : public ExchangesTest {
 protected:
  ExchangesThatWarn() { warn_sec_ = 0.2; }
};

TEST_P(ExchangesThatWarn, AStderrThatNobodyReadsStopsNoExchange) {
  FullStderr full;
  const auto begun = std::chrono::steady_clock::now();
  in_each(size(), [&](int r) {
    Loop loop(r, size(), 1, 10, false);
    loop.fill(0);
    if (r != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    Waiter waiter;
    at(r).exchanges->start(loop.exchange(), waiter);
    waiter.wait(*at(r).exchanges, /*looks=*/false);
    EXPECT_EQ(loop.wrong(size()), 0);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(4500));
  EXPECT_THAT(full.text(), HasSubstr("process 0 waits for others in collective number 0"));
}

INSTANTIATE_TEST_SUITE_P(Forms, ExchangesTest, kExchangeForms, name_of);
INSTANTIATE_TEST_SUITE_P(Forms, ExchangesThatWarn,
                         testing::Values(Form{2, NodeLink::Carries::messages, false},
                                         Form{2, NodeLink::Carries::nothing, false}),
                         name_of);

}  // namespace
}  // namespace shmap::test
