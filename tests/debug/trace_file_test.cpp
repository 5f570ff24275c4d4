// shmap-test: devices
// The contents of a trace file for a program that runs op by op and as a captured graph: lanes,
// named scopes, labels of spans, arrows, memory, and the host's work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/device/runtime.h"
#include "core/device/span_label.h"
#include "shmap/shmap.h"
#include "tests/support/temp_folder.h"

#if __has_include(<nlohmann/json.hpp>)
#define SHMAP_TEST_PARSES_JSON 1
#include <nlohmann/json.hpp>
#endif

namespace shmap {
namespace {

namespace fs = std::filesystem;

constexpr int kDevices = 8;

// A product in two scopes, elementwise operations in one, and a ring.
Array body(Array x) {
  const named_scope layer("layer");
  Array y;
  {
    const named_scope inner("product");
    y = matmul(x, x);
  }
  y = tanh(y * 0.5f) + 1.f;
  return ppermute(y, "i", ring_permutation("i", 1));
}

auto mapped() { return shard_map(body, make_mesh({kDevices}, "i"), {P("i")}, P("i")); }

Array argument() { return reshape(arange(kDevices * 16 * 16) * 0.001f, {kDevices * 16, 16}); }

#ifdef SHMAP_TEST_PARSES_JSON
using nlohmann::json;

class TraceFile : public testing::Test {
 protected:
  // The events of a trace of this work.
  template <class F>
  json traced(F&& run) {
    const std::string path = folder_ / "trace.json";
    profiler::Trace trace(path);
    run();
    trace.close();
    std::ifstream in(path);
    whole_ = json::parse(in);
    return whole_.at("traceEvents");
  }

  test::TempFolder folder_{"trace_file"};
  json whole_;
};

using Lane = std::pair<int, int>;  // process and thread of the file
Lane lane_of(const json& e) { return {e.at("pid").get<int>(), e.value("tid", 0)}; }

// The lanes by name, "CpuDevice(id=0)/compute".
std::map<Lane, std::string> lane_names(const json& events) {
  std::map<int, std::string> processes;
  std::map<Lane, std::string> lanes;
  for (const json& e : events)
    if (e.at("name") == "process_name") processes[e.at("pid")] = e.at("args").at("name");
  for (const json& e : events) {
    if (e.at("name") == "thread_name")
      lanes[lane_of(e)] =
          processes.at(e.at("pid")) + "/" + e.at("args").at("name").get<std::string>();
  }
  return lanes;
}

std::vector<json> spans_named(const json& events, const std::string& name) {
  std::vector<json> found;
  for (const json& e : events)
    if (e.at("ph") == "X" && e.at("name") == name) found.push_back(e);
  return found;
}

bool lies_in(double at, const json& span) {
  const double begin = span.at("ts"), end = begin + span.at("dur").get<double>();
  return begin - 1e-6 <= at && at <= end + 1e-6;
}

using Moves = std::set<std::pair<int, int>>;  // from device, to device

MemorySpace* space_of_device(int d) {
  return runtime().local_devices()[static_cast<std::size_t>(d)].space;
}

// Each arrow begins once and ends once, not before its begin, inside of spans of its collective;
// and the arrows are those that are wanted.
void check_arrows(const json& events, const Moves& wanted) {
  std::map<std::string, std::vector<json>> ends;
  for (const json& e : events)
    if (e.at("ph") == "s" || e.at("ph") == "f") ends[e.at("id")].push_back(e);
  Moves from_to;
  for (const auto& [id, both] : ends) {
    ASSERT_EQ(both.size(), 2u) << id;
    const bool in_order = both[0].at("ph") == "s";
    const json &begin = both[in_order ? 0 : 1], &end = both[in_order ? 1 : 0];
    ASSERT_EQ(begin.at("ph"), "s");
    ASSERT_EQ(end.at("ph"), "f");
    EXPECT_EQ(begin.at("name"), end.at("name"));
    EXPECT_LE(begin.at("ts").get<double>(), end.at("ts").get<double>());
    for (const json* e : {&begin, &end}) {
      int around = 0;
      for (const json& span : events) {
        around +=
            span.at("ph") == "X" && lane_of(span) == lane_of(*e) &&
            span.at("name").get<std::string>().rfind(e->at("name").get<std::string>(), 0) == 0 &&
            lies_in(e->at("ts"), span);
      }
      EXPECT_GE(around, 1) << e->dump();
    }
    from_to.emplace(begin.at("pid").get<int>() - 1, end.at("pid").get<int>() - 1);
  }
  EXPECT_EQ(from_to, wanted);
}

// Data that stay in a memory space do not move.
Moves around_the_ring() {
  Moves moves;
  for (int d = 0; d < kDevices; ++d) {
    const int next = (d + 1) % kDevices;
    if (space_of_device(d) != space_of_device(next)) moves.emplace(d, next);
  }
  return moves;
}

// Checks contents that do not depend on how the program ran.
void check_program(const json& events) {
  const std::map<Lane, std::string> lanes = lane_names(events);
  const auto products = spans_named(events, "dot_general");
  ASSERT_GE(products.size(), static_cast<std::size_t>(kDevices));
  for (const json& e : products) {
    EXPECT_THAT(lanes.at(lane_of(e)), testing::HasSubstr("/compute"));
    const json& args = e.at("args");
    EXPECT_EQ(args.at("scope"), "layer/product") << e.dump();
    EXPECT_EQ(args.at("flops").get<double>(), 2.0 * 16 * 16 * 16);
    EXPECT_THAT(args.at("operands").get<std::string>(), testing::HasSubstr("f32[16,16]"));
    EXPECT_THAT(args.at("results").get<std::string>(), testing::HasSubstr("f32[16,16]"));
    EXPECT_THAT(args.at("source").get<std::string>(), testing::HasSubstr("trace_file_test.cpp:"));
    EXPECT_GT(args.at("bytes").get<std::int64_t>(), 0);
  }
  for (const json& e : spans_named(events, "ppermute")) {
    EXPECT_THAT(lanes.at(lane_of(e)), testing::HasSubstr("/communication"));
    EXPECT_EQ(e.at("args").at("scope"), "layer");
    EXPECT_EQ(e.at("args").at("bytes").get<std::int64_t>(), 16 * 16 * 4);
  }
  check_arrows(events, around_the_ring());
  std::set<int> counted;
  for (const json& e : events) {
    if (e.at("ph") != "C") continue;
    counted.insert(e.at("pid").get<int>());
    EXPECT_GE(e.at("args").at("bytes").get<std::int64_t>(), 0);
  }
  EXPECT_EQ(counted.size(), static_cast<std::size_t>(kDevices));
  // In the lane of scopes each inner scope is inside its outer scope.
  int inner_scopes = 0;
  for (const json& inner : spans_named(events, "product")) {
    if (lanes.at(lane_of(inner)).rfind("host/", 0) == 0) continue;
    ++inner_scopes;
    EXPECT_THAT(lanes.at(lane_of(inner)), testing::HasSubstr("/scopes"));
    int around = 0;
    for (const json& outer : spans_named(events, "layer")) {
      around += lane_of(outer) == lane_of(inner) && lies_in(inner.at("ts"), outer) &&
                lies_in(inner.at("ts").get<double>() + inner.at("dur").get<double>(), outer);
    }
    EXPECT_EQ(around, 1) << inner.dump();
  }
  EXPECT_GE(inner_scopes, kDevices);
}

TEST_F(TraceFile, OfEagerOperations) {
  const auto f = mapped();
  const Array x = argument();
  f(x).block_until_ready();
  const json events = traced([&] { f(x).block_until_ready(); });
  check_program(events);
  EXPECT_EQ(spans_named(events, "layer").empty(), false);
  EXPECT_TRUE(whole_.at("otherData").at("begin_ns").get<std::int64_t>() > 0);
  EXPECT_EQ(whole_.at("otherData").at("processes"), 1);
}

TEST_F(TraceFile, OfACapturedGraph) {
  const auto f = jit(mapped());
  const Array x = argument();
  const json events = traced([&] {
    for (int k = 0; k < 4; ++k) f(x).block_until_ready();
  });
  check_program(events);
  EXPECT_EQ(spans_named(events, "trace jit").size(), 1u);
  EXPECT_EQ(spans_named(events, "plan jit").size(), 1u);
  EXPECT_GE(spans_named(events, "capture").size(), 1u);
  int fused = 0;
  for (const json& e : spans_named(events, "fused")) {
    ++fused;
    const json& members = e.at("args").at("members");
    EXPECT_NE(std::find(members.begin(), members.end(), "tanh"), members.end()) << e.dump();
    EXPECT_EQ(members.size(), 3u) << e.dump();
  }
  EXPECT_GE(fused, 1);
}

// The first device's task adds the blocks of all, and copies the sum into each other memory space.
TEST_F(TraceFile, OfASum) {
  if (!runtime().backend().host_addressable())
    GTEST_SKIP() << "GPUs of their own add the blocks each for itself";
  Moves wanted;
  std::set<MemorySpace*> seen = {space_of_device(0)};
  for (int d = 1; d < kDevices; ++d) {
    if (space_of_device(d) == space_of_device(0)) continue;
    wanted.emplace(d, 0);
    if (seen.insert(space_of_device(d)).second) wanted.emplace(0, d);
  }
  const auto f =
      shard_map([](Array b) { return psum(b, "i"); }, make_mesh({kDevices}, "i"), P("i"), P());
  const Array x = argument();
  check_arrows(traced([&] { f(x).block_until_ready(); }), wanted);
  const auto replayed = jit(f);
  for (int k = 0; k < 3; ++k) replayed(x).block_until_ready();
  check_arrows(traced([&] { replayed(x).block_until_ready(); }), wanted);
}

// On CPUs a trace shows the tasks of a graph that was captured before it. On GPUs it is one
// span.
TEST_F(TraceFile, OfAGraphCapturedBefore) {
  if (runtime().backend().kind() != DeviceKind::cpu)
    GTEST_SKIP() << "this test reads what traces say of CPU devices only";
  const auto f = jit(mapped());
  const Array x = argument();
  for (int k = 0; k < 3; ++k) f(x).block_until_ready();
  const json events = traced([&] { f(x).block_until_ready(); });
  check_program(events);
  EXPECT_EQ(spans_named(events, "dot_general").size(), static_cast<std::size_t>(kDevices));
  EXPECT_TRUE(spans_named(events, "trace jit").empty());
}

// A function under jit is traced once and serves calls from all scopes: the scope of a call is the
// host's. If another function under jit calls it, the scope of the call is an outer one.
TEST_F(TraceFile, ScopesOfCallsOfPrograms) {
  const auto inner = jit([](Array x) {
    const named_scope scope("inner");
    return matmul(x, x);
  });
  const auto outer = jit([&](Array x) {
    const named_scope scope("outer");
    return inner(x);
  });
  const Array x = reshape(arange(64) * 0.01f, {8, 8});
  const json events = traced([&] {
    const named_scope call("call");
    inner(x).block_until_ready();
    outer(x).block_until_ready();
  });
  std::set<std::string> scopes;
  for (const json& e : spans_named(events, "dot_general")) scopes.insert(e.at("args").at("scope"));
  EXPECT_EQ(scopes, (std::set<std::string>{"inner", "outer/inner"}));
  EXPECT_EQ(spans_named(events, "call").size(), 1u);
}

// Derivatives are in the scopes of the operations that they derive.
TEST_F(TraceFile, ScopesOfDerivatives) {
  const auto loss = [](Array x) {
    const named_scope scope("layer");
    return sum(matmul(x, x));
  };
  const Array x = reshape(arange(64) * 0.01f, {8, 8});
  const auto f = jit(grad(loss));
  const json events = traced([&] { f(x).block_until_ready(); });
  // The backward pass has one product for each operand. On GPUs the second one adds to the first.
  auto products = spans_named(events, "dot_general");
  for (const json& e : spans_named(events, "product_into")) products.push_back(e);
  ASSERT_GE(products.size(), 2u);
  for (const json& e : products) EXPECT_EQ(e.at("args").at("scope"), "layer") << e.dump();
}

#endif  // SHMAP_TEST_PARSES_JSON

TEST(SpanLabels, AreMadeOnlyForTracesAndGraphs) {
  const auto f = mapped();
  const Array x = argument();
  f(x).block_until_ready();
  const std::int64_t before = labels_alive();
  f(x).block_until_ready();
  EXPECT_EQ(labels_alive(), before);
  {
    const auto g = jit(mapped());
    for (int k = 0; k < 3; ++k) g(x).block_until_ready();
    EXPECT_GT(labels_alive(), before);
  }
  runtime().backend().synchronize();
  for (const LocalDevice& d : runtime().local_devices()) d.space->reclaim();
  EXPECT_EQ(labels_alive(), before);  // they went with the graph
}

// The sink of a recording is gone before its names are read for the file.
TEST(SpanLabels, OfDestroyedGraphsLiveUntilARecordingHasReadThem) {
  forget_labels();
  forget_labels();
  const std::int64_t before = labels_alive();
  {
    const LabelsInUse reading;
    const char* labelled = nullptr;
    {
      KeptLabels kept;
      const KeptLabels::Scope scope(kept);
      labelled = labelled_name("add", {nullptr, 7, {}, {}, {}});
    }
    EXPECT_EQ(label_of(labelled).collective, 7u);
    EXPECT_EQ(labels_alive(), before + 1);
  }
  forget_labels();  // the next recording begins
  forget_labels();
  EXPECT_EQ(labels_alive(), before);
}

TEST(SpanLabels, AreFoundByTheirNames) {
  static const char* const name = "add";
  EXPECT_EQ(label_of(name).collective, 0u);
  const std::int64_t before = labels_alive();
  {
    KeptLabels kept;
    EXPECT_TRUE(kept.empty());
    const char* labelled = nullptr;
    {
      const KeptLabels::Scope scope(kept);
      labelled = labelled_name(name, {nullptr, 7, {{0, 1}}, {}, {}});
    }
    EXPECT_FALSE(kept.empty());
    EXPECT_STREQ(labelled, name);
    EXPECT_NE(labelled, name);
    EXPECT_EQ(label_of(labelled).collective, 7u);
    EXPECT_THAT(label_of(labelled).moves, testing::ElementsAre(std::pair(0, 1)));
    EXPECT_EQ(label_of(name).collective, 0u);
    EXPECT_EQ(labels_alive(), before + 1);
  }
  EXPECT_EQ(labels_alive(), before);
}

}  // namespace
}  // namespace shmap
