// Between devices of several memory spaces, a loop's communication runs beside its arithmetic,
// unless one waits for the other. Seen in the intervals in which the tasks ran.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <string>
#include <utility>
#include <vector>

#include "core/device/runtime.h"
#include "core/device/timeline.h"
#include "tests/support/child_process.h"
#include "tests/support/timeline_scope.h"

namespace shmap {
namespace {

constexpr int kDevices = 8;
constexpr int kSteps = 4;
constexpr int kRows = 256, kColumns = 1024;  // of a device's block of lhs, 1 MiB: a copy is queued

std::vector<std::pair<int, int>> ring() {
  std::vector<std::pair<int, int>> to_next;
  for (int i = 0; i < kDevices; ++i) to_next.emplace_back(i, (i + 1) % kDevices);
  return to_next;
}

// Each step's product and permutation read the same block, so that neither waits for the other.
Array products_of_a_ring(Array lhs, Array rhs) {
  Array sum = matmul(lhs, rhs);
  for (int k = 0; k < kSteps; ++k) {
    const Array product = matmul(lhs, rhs);
    lhs = ppermute(lhs, "i", ring());
    sum = sum + product;
  }
  return sum + matmul(lhs, rhs);
}

// Each permutation moves the step's product, and the next product reads the moved block.
Array chain(Array lhs, Array rhs) {
  for (int k = 0; k < kSteps; ++k) lhs = ppermute(matmul(lhs, rhs), "i", ring());
  return lhs;
}

using Events = std::vector<TimelineEvent>;

// The events of all devices' streams while `body` ran.
Events events_of(Array (*body)(Array, Array), int columns_of_rhs) {
  const Mesh mesh = make_mesh({kDevices}, {"i"});
  const Array lhs = device_put(ones({kDevices * kRows, kColumns}), NamedSharding(mesh, P("i")));
  const Array rhs =
      device_put(full({kColumns, columns_of_rhs}, 1.f / kColumns), NamedSharding(mesh, P()));
  Backend& backend = runtime().backend();
  backend.synchronize();
  TimelineRecorder recorder;
  {
    const test::TimelineScope recording(recorder, backend);
    const Array out = shard_map(body, mesh, {P("i"), P()}, P("i"))(lhs, rhs);
    backend.synchronize();
  }
  if (recorder.lost() != 0) throw Error("events were lost");
  return recorder.take();
}

// The events of one device and name, in the order of its stream.
Events select(const Events& all, int device, std::string_view name) {
  Events out;
  for (const TimelineEvent& e : all)
    if (e.device == device && e.name == name) out.push_back(e);
  return out;
}

bool at_once(const TimelineEvent& a, const TimelineEvent& b) {
  return a.begin_ns < b.end_ns && b.begin_ns < a.end_ns;
}

void expect_overlap_in_a_ring() {
  // The machine decides which ready tasks run first. If no copy at all ran beside a product in so
  // many loops, something made them wait.
  for (int loops = 0; loops < 50; ++loops) {
    const Events events = events_of(products_of_a_ring, 256);
    for (int d = 0; d < kDevices; ++d) {
      const Events copies = select(events, d, "ppermute");
      if (copies.size() != kSteps) {
        throw Error("device " + std::to_string(d) + " made " + std::to_string(copies.size()) +
                    " copies");
      }
      for (const TimelineEvent& copy : copies) {
        for (const TimelineEvent& e : events)
          if (std::string_view(e.name) == "dot_general" && at_once(copy, e)) return;
      }
    }
  }
  throw Error("no copy ran beside a product");
}

void expect_order_in_a_chain() {
  for (int loops = 0; loops < 2; ++loops) {
    const Events events = events_of(chain, kColumns);
    for (int d = 0; d < kDevices; ++d) {
      const int next = (d + 1) % kDevices;
      const Events products = select(events, d, "dot_general");
      const Events copies = select(events, next, "ppermute");
      const Events after = select(events, next, "dot_general");
      if (products.size() != kSteps || copies.size() != kSteps || after.size() != kSteps)
        throw Error("device " + std::to_string(d) + ": tasks are missing");
      for (std::size_t k = 0; k < kSteps; ++k) {
        const bool ordered = products[k].end_ns <= copies[k].begin_ns &&
                             (k + 1 == kSteps || copies[k].end_ns <= after[k + 1].begin_ns);
        if (!ordered) throw Error("step " + std::to_string(k) + " of the chain did not wait");
      }
    }
  }
}

// Runs in its own process, since the executor is chosen when the runtime starts.
void in_async_process(void (*check)()) {
  const test::ChildResult result = test::in_child(
      {{"SHMAP_DEVICES", "cpu:8/8"}, {"SHMAP_EXECUTOR", "async"}, {"SHMAP_WORKERS", "2"}}, check);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(result.signal, 0);
}

TEST(Overlap, CopiesOfARingRunBesideItsProducts) { in_async_process(expect_overlap_in_a_ring); }

TEST(Overlap, WhatDependsOnEachOtherRunsInTurn) { in_async_process(expect_order_in_a_chain); }

}  // namespace
}  // namespace shmap
