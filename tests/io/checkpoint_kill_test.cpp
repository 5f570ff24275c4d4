// Checkpoints of processes that are killed at any moment while they write, and of disks that fill
// up: earlier checkpoints stay whole. The program waits for each save or goes on meanwhile.
// SHMAP_TEST_KILLS=200 kills as many in each way; 6 otherwise.
#include <gtest/gtest.h>
#include <sched.h>
#include <shmap/shmap.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <random>

#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace shmap {
namespace {

namespace fs = std::filesystem;
constexpr int kKeep = 2;

class CheckpointKill : public testing::Test {
 protected:
  const test::TempFolder folder_{"checkpoint_kill"};
  const std::string dir_ = folder_.path().string();
};

using State = std::map<std::string, Array>;
State state_of(int step) {
  const NamedSharding sharding(make_mesh({8}, "i"), P("i"));
  return {{"w", device_put(full({8, 1 << 15}, step, i32), sharding)},
          {"b", full({1000}, -step, i32)},
          {"step", full({}, step, i32)}};
}

// Saves one step after another, and reports each that is done. With `in_flight` of more than one,
// so many saves at a time go on in the background.
void save_for_ever(const std::string& dir, int first, int in_flight, int report) {
  const auto done = [&](int step) { return write(report, &step, sizeof step) == sizeof step; };
  std::deque<PendingCheckpoint> pending;
  for (int step = first;; ++step) {
    if (in_flight == 1) {
      save_checkpoint(dir, state_of(step), {.keep = kKeep});
      if (!done(step)) return;
      continue;
    }
    pending.push_back(save_checkpoint_async(dir, state_of(step), {.keep = kKeep}));
    if (static_cast<int>(pending.size()) < in_flight) continue;
    pending.front().wait();
    pending.pop_front();
    if (!done(step + 1 - in_flight)) return;
  }
}

// The step of the newest checkpoint, every element of which has to be that step's.
int checked_step(const std::string& dir) {
  const State got = load_checkpoint(dir, state_of(0));
  const int step = got.at("step").item<std::int32_t>();
  const bool whole =
      all(got.at("w") == step).item<bool>() && all(got.at("b") == -step).item<bool>();
  return whole ? step : -1;
}

class CheckpointKillAtRandomMoments : public CheckpointKill,
                                      public testing::WithParamInterface<int> {};

TEST_P(CheckpointKillAtRandomMoments, LeavesTheNewestWholeOne) {
  const int in_flight = GetParam();
  const char* given = std::getenv("SHMAP_TEST_KILLS");
  const int kills = given ? std::atoi(given) : 6;
  std::mt19937 random(20240711);
  int acknowledged = 0, drafts = 0;
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipes[0]);
      setenv("SHMAP_DEVICES", "cpu:8", 1);
      try {
        save_for_ever(dir_, acknowledged + 1, in_flight, pipes[1]);
      } catch (const std::exception& e) {
        fprintf(stderr, "the saver failed: %s\n", e.what());
      }
      _exit(1);
    }
    close(pipes[1]);
    int step = 0;
    // Once it has begun, after a while that ends anywhere in one of the next saves.
    ASSERT_EQ(read(pipes[0], &step, sizeof step), static_cast<ssize_t>(sizeof step));
    acknowledged = step;
    usleep(static_cast<useconds_t>(random() % 30000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the saver ended by itself";
    while (read(pipes[0], &step, sizeof step) == static_cast<ssize_t>(sizeof step))
      acknowledged = step;
    close(pipes[0]);
    int whole = 0;
    for (const auto& entry : fs::directory_iterator(dir_)) {
      const bool draft = entry.path().filename().string().ends_with(".draft");
      drafts += draft;
      whole += !draft;
      if (draft) fs::remove(entry.path());
    }
    EXPECT_GE(whole, 1);
    EXPECT_LE(whole, kKeep + 1);  // killed before the oldest was removed
    const test::ChildResult result = test::in_child({{"SHMAP_DEVICES", "cpu:8"}}, [&] {
      const int found = checked_step(dir_);
      if (found < acknowledged || found > acknowledged + in_flight)
        throw std::runtime_error("step " + std::to_string(found) + " was found, and " +
                                 std::to_string(acknowledged) + " was the last that was saved");
      printf("%d", found);
    });
    ASSERT_EQ(result.exit_code, 0) << result.output;
    acknowledged = std::atoi(result.output.c_str());
  }
  printf("%d kills, %d of them in the middle of a save; step %d\n", kills, drafts, acknowledged);
}
INSTANTIATE_TEST_SUITE_P(, CheckpointKillAtRandomMoments, testing::Values(1, 3),
                         [](const testing::TestParamInfo<int>& info) {
                           return std::string(info.param == 1 ? "WaitingForEachSave"
                                                              : "WhileThreeAreInFlight");
                         });

// A file that the system lets grow no further, as of a quota.
TEST_F(CheckpointKill, AFileThatMayNotGrow) {
  const test::ChildResult result = test::in_child({{"SHMAP_DEVICES", "cpu:8"}}, [&] {
    save_checkpoint(dir_, state_of(3));
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{500'000, 500'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("no limit");
    try {
      save_checkpoint(dir_, state_of(4));
      throw std::runtime_error("it was written");
    } catch (const Error& e) {
      const std::string text = e.what();
      if (text.find("checkpoint-00000002.shmap") == text.npos ||
          text.find("File too large") == text.npos)
        throw std::runtime_error(text);
    }
    if (checked_step(dir_) != 3) throw std::runtime_error("the old one is gone");
  });
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(CheckpointKill, ADiskThatFillsUp) {
  const test::ChildResult result = test::in_child({{"SHMAP_DEVICES", "cpu:8"}}, [&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        mount("shmap_test", dir_.c_str(), "tmpfs", 0, "size=1600k") != 0) {
      printf("skipped");
      return;
    }
    save_checkpoint(dir_, state_of(3));
    for (int k = 0; k < 3; ++k) {
      try {
        save_checkpoint(dir_, state_of(4));
        throw std::runtime_error("it was written");
      } catch (const Error& e) {
        const std::string text = e.what();
        if (text.find("No space left on device") == text.npos) throw std::runtime_error(text);
      }
      if (checked_step(dir_) != 3) throw std::runtime_error("the old one is gone");
    }
  });
  EXPECT_EQ(result.exit_code, 0) << result.output;
  if (result.output == "skipped") GTEST_SKIP() << "this user may not mount file systems";
}

}  // namespace
}  // namespace shmap
