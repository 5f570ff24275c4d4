// The runtime's start: device strings, environment, errors.
#include "core/device/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "core/device/registry.h"
#include "core/device/spec.h"
#include "shmap/error.h"

namespace shmap {
namespace {

using ::testing::HasSubstr;

TEST(DeviceSpec, ReadsTheAcceptedForms) {
  DeviceSpec s = DeviceSpec::parse("cpu:8");
  EXPECT_EQ(s.count, 8);
  EXPECT_EQ(s.spaces, 1);
  EXPECT_EQ(DeviceSpec::parse("cpu:8/8").spaces, 8);
  EXPECT_EQ(DeviceSpec::parse("cpu:8/2").spaces, 2);
  EXPECT_EQ(DeviceSpec::parse("cpu:65536").count, 65536);
  EXPECT_EQ(DeviceSpec::parse("cuda").kind, DeviceKind::cuda);
  EXPECT_THAT(DeviceSpec::parse("cuda:0,2").gpus, ::testing::ElementsAre(0, 2));
  s = DeviceSpec::parse("cuda:1x4/2");
  EXPECT_THAT(s.gpus, ::testing::ElementsAre(1));
  EXPECT_EQ(s.count, 4);
  EXPECT_EQ(s.spaces, 2);
}

TEST(DeviceSpec, RefusesEverythingElseByNameAndForm) {
  const std::string bad[] = {"",
                             "cpu",
                             "cpu:",
                             "cpu:0",
                             "cpu:-1",
                             "cpu:x",
                             "cpu:8/",
                             "cpu:8/3",
                             "cpu:8/0",
                             "cpu:8/16",
                             "cpu:8 ",
                             " cpu:8",
                             "cpu:8/2/2",
                             "cpu:8x2",
                             "cpu:65537",
                             "CPU:8",
                             "gpu:0",
                             "cuda:",
                             "cuda:a",
                             "cuda:0,",
                             "cuda:0,0",
                             "cuda:0,1x2",
                             "cuda:0x",
                             "cuda:0x0",
                             "cuda:0x4/3",
                             "cpu:1e3",
                             "cpu:+8",
                             "cpu:99999999999999999999",
                             std::string(100'000, 'c'),
                             "cpu:8\n"};
  for (const std::string& text : bad) {
    try {
      DeviceSpec::parse(text);
      ADD_FAILURE() << "accepted \"" << text << "\"";
    } catch (const ValueError& e) {
      if (text.size() < 60 && text.find('\n') == text.npos) {
        EXPECT_THAT(e.what(), HasSubstr("devices \"" + text + "\": "));
      }
      EXPECT_THAT(e.what(), HasSubstr("cpu:N/S"));
      EXPECT_THAT(e.what(), HasSubstr("SHMAP_DEVICES"));
      EXPECT_LT(std::string(e.what()).size(), 700u);
    }
  }
  try {
    DeviceSpec::parse("cpu:8/3");
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("3 memory spaces do not divide 8 devices"));
  }
}

TEST(Runtime, SaysWhyThereIsNoGpu) {
  bool built_in = false;
  for (const BackendFactory& factory : built_in_backends()) {
    if (factory.kind != DeviceKind::cuda) continue;
    built_in = true;
    if (factory.default_devices()[0] != '\0')
      GTEST_SKIP() << "this machine has a CUDA device, and the test is about one that has none";
  }
  try {
    Runtime r(Options{"cuda:0x4"});
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), HasSubstr(built_in ? "GPU 0 were asked for"
                                             : "cuda is not built into this library (it has cpu)"));
    EXPECT_THAT(e.what(), HasSubstr("SHMAP_DEVICES=cpu:8"));
  }
}

TEST(Runtime, KnowsItsDevices) {
  const Runtime r(Options{"cpu:6/3"});
  ASSERT_EQ(r.devices().size(), 6u);
  EXPECT_EQ(r.device_string(), "cpu:6/3");
  std::ostringstream os;
  os << r.devices()[3];
  EXPECT_EQ(os.str(), "CpuDevice(id=3)");
  EXPECT_EQ(r.devices()[3].id(), 3);
  EXPECT_EQ(r.devices()[3].process_index(), 0);
  EXPECT_NE(r.devices()[3], r.devices()[2]);
  EXPECT_EQ(r.local_device(r.devices()[4]).index, 4);
  const Runtime larger(Options{"cpu:8"});
  EXPECT_THROW(r.local_device(larger.devices()[7]), DeviceError);
  EXPECT_EQ(r.process_count(), 1);
}

// Each test runs in its own process, since the runtime starts once.
class StartDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
  // Exits with 0 where start() throws an E whose text has all of `parts`; prints the text.
  template <class E>
  static void exit_with(void (*start)(), std::initializer_list<const char*> parts) {
    try {
      start();
    } catch (const E& e) {
      for (const char* part : parts) {
        if (std::string(e.what()).find(part) == std::string::npos) {
          std::fprintf(stderr, "no '%s' in: %s\n", part, e.what());
          std::exit(2);
        }
      }
      std::exit(0);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "another error: %s\n", e.what());
      std::exit(3);
    }
    std::exit(1);
  }
  static void start() { runtime(); }
};

TEST_F(StartDeathTest, AMisspeltVariableIsNamedWithItsNeighbour) {
  EXPECT_EXIT(
      {
        setenv("SHMAP_DEVICE", "cpu:4", 1);
        exit_with<ValueError>(start, {"SHMAP_DEVICE is not one", "nearest is SHMAP_DEVICES"});
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("SHMAP_EXECUTER", "inline", 1);
        exit_with<ValueError>(start, {"nearest is SHMAP_EXECUTOR"});
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(StartDeathTest, AnAbsurdValueIsQuoted) {
  EXPECT_EXIT(
      {
        setenv("SHMAP_COLLECTIVE_WARN_SEC", "-3", 1);
        exit_with<ValueError>(start, {"SHMAP_COLLECTIVE_WARN_SEC=\"-3\"", "seconds"});
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("SHMAP_MEMORY_LIMIT", "99999999T", 1);
        exit_with<ValueError>(start, {"SHMAP_MEMORY_LIMIT=\"99999999T\"", "512M"});
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("SHMAP_DEVICES", "cpu:7/2", 1);
        exit_with<ValueError>(start, {"\"cpu:7/2\"", "do not divide 7"});
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(StartDeathTest, AFailedStartMayBeTriedAgain) {
  EXPECT_EXIT(
      {
        setenv("SHMAP_DEVICES", "cpu:none", 1);
        try {
          runtime();
          std::exit(1);
        } catch (const ValueError&) {
        }
        setenv("SHMAP_DEVICES", "cpu:3", 1);
        std::exit(devices().size() == 3 ? 0 : 2);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(StartDeathTest, InitWinsOverTheVariableAndRefusesASecondMind) {
  EXPECT_EXIT(
      {
        setenv("SHMAP_DEVICES", "cpu:3", 1);
        int argc = 0;
        char** argv = nullptr;
        init(argc, argv, {"cpu:5"});
        if (devices().size() != 5 || local_devices().size() != 5) std::exit(1);
        init(argc, argv, {"cpu:5"});
        init(argc, argv);
        exit_with<DeviceError>(
            [] {
              int n = 0;
              char** none = nullptr;
              init(n, none, {"cpu:6"});
            },
            {"\"cpu:6\"", "already with \"cpu:5\""});
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(StartDeathTest, AMemoryLimitAndFaultsAreHonoured) {
  EXPECT_EXIT(
      {
        setenv("SHMAP_MEMORY_LIMIT", "4MiB", 1);
        setenv("SHMAP_FAULT", "allocate#3:oom", 1);
        exit_with<OutOfMemory>(
            [] {
              MemorySpace& space = *runtime().local_devices()[0].space;
              if (space.limit() != 4 << 20) std::exit(4);
              BufferRef a = space.allocate(100), b = space.allocate(100);
              space.allocate(100);
            },
            {"injected", "limit 4.0 MiB"});
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace shmap
