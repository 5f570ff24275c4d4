// The whole text of a plan: its steps, their streams and events, slots and bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "shmap/shmap.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

Array numbers(Shape shape) { return reshape(arange(shape.num_elements()), shape); }

// The text after enough calls that all is captured, with these devices.
template <class F>
std::string plan_with(const char* devices, F run) {
  const test::ChildResult child = test::in_child(
      {{"SHMAP_DEVICES", devices}, {"SHMAP_EXECUTOR", "inline"}}, [&] { std::cout << run(); });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  return child.output;
}

std::string straight() {
  const auto f = jit([](Array x, Array w) {
    const Array h = matmul(x, w);
    return std::pair{sum(tanh(h) * 2.f), sort(h)};
  });
  for (int call = 0; call < 3; ++call) f(numbers({4, 8}), numbers({8, 3}));
  return f.plan_text();
}

std::string mapped() {
  const Mesh mesh = make_mesh({4}, "i");
  const auto f = jit(shard_map(
      [](Array x, Array y) {
        const Array right = ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
        return std::pair{psum(sin(x) + 1.f, "i"), matmul(right, y)};
      },
      mesh, {P("i"), P()}, {P(), P("i")}));
  const Array x = device_put(numbers({8, 4}), NamedSharding(mesh, P("i")));
  const Array y = device_put(numbers({4, 4}), NamedSharding(mesh, P()));
  for (int call = 0; call < 3; ++call) f(x, y);
  return f.plan_text();
}

// With 4 elements a trip is so short that a device runs the loop as a task; with 50000 the host
// launches each trip.
std::string loop(const Array& x) {
  const auto f = jit([](Array x) {
    const Array y = while_loop([](Array v) { return sum(v) < 100.f; },
                               [](Array v) { return v * 2.f + 1.f; }, x);
    return sort(y);
  });
  for (int call = 0; call < 3; ++call) f(x);
  return f.plan_text();
}
std::string short_loop() { return loop(numbers({4})); }
std::string long_loop() { return loop(zeros({50000})); }

TEST(PlanText, OfAStraightProgram) {
  EXPECT_EQ(plan_with("cpu:8", straight), R"(plan on Mesh(without axes)
  arguments: %0 %1
segment 0
  step 0: compute %2:f32[4,3] = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] %0! %1!
    1 task on compute of device 0
  step 1: compute %3:f32[] = fused[program=[1,12] (a:f32) b:f32 = tanh a; c:f32 = mul b 2.0; d:f32/row = reduce_sum c -> d] %2
    1 task on compute of device 0
  step 2: compute %4:f32[4,3] = sort[dimension=1 is_stable=True num_keys=1] %2!
    1 task on compute of device 0
  graph: 3 tasks, 2 edges
  memory of CpuDevice(id=0..7): 64 bytes (64 alive at once)
    slot 0: 48 bytes at 0, %2
  output sets: 1, of 2 buffers and 52 bytes
  results: %3 %4
)");
}

TEST(PlanText, OfAMappedProgramInOneMemorySpace) {
  EXPECT_EQ(plan_with("cpu:4", mapped), R"(plan on Mesh('i': 4)
  arguments: %0 %1
segment 0
  step 0: comm    %2:f32[2,4]{i} = ppermute[axis_name=('i',) perm=((0, 1), (1, 2), (2, 3), (3, 0))] %0
  step 1: compute %3:f32[2,4]{i} = fused[program=[1,8] (a:f32) b:f32 = sin a; c:f32 = add b 1.0 -> c] %0!
    4 tasks on compute of devices 0-3
  step 2: comm    %4:f32[2,4] = psum[axes=('i',)] %3!
    1 task on comm of device 0, after the events of step 1
  step 3: comm    %5:f32[4,4]{i} = pbroadcast[axes=('i',)] %1!
  step 4: compute %6:f32[2,4]{i} = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] %2! %5!
    4 tasks on compute of devices 0-3
  graph: 9 tasks, 8 edges
  memory of CpuDevice(id=0..3): 256 bytes (256 alive at once)
    slots 0-3: 32 bytes each at 0, %3
  output sets: 1, of 5 buffers and 160 bytes
  results: %4 %6
)");
}

TEST(PlanText, OfAMappedProgramInSpacesOfTheirOwn) {
  EXPECT_EQ(plan_with("cpu:4/4", mapped), R"(plan on Mesh('i': 4)
  arguments: %0 %1
segment 0
  step 0: comm    %2:f32[2,4]{i} = ppermute[axis_name=('i',) perm=((0, 1), (1, 2), (2, 3), (3, 0))] %0
    4 tasks on comm of devices 0-3
  step 1: compute %3:f32[2,4]{i} = fused[program=[1,8] (a:f32) b:f32 = sin a; c:f32 = add b 1.0 -> c] %0!
    4 tasks on compute of devices 0-3
  step 2: comm    %4:f32[2,4] = psum[axes=('i',)] %3!
    1 task on comm of device 0, after the events of step 1
  step 3: comm    %5:f32[4,4]{i} = pbroadcast[axes=('i',)] %1!
  step 4: compute %6:f32[2,4]{i} = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] %2! %5!
    4 tasks on compute of devices 0-3, after the events of step 0
  graph: 13 tasks, 13 edges
  memory of CpuDevice(id=0): 128 bytes (128 alive at once)
    slot 0: 32 bytes at 0, %2
    slot 4: 32 bytes at 64, %3
  memory of CpuDevice(id=1): 128 bytes (128 alive at once)
    slot 1: 32 bytes at 0, %2
    slot 5: 32 bytes at 64, %3
  memory of CpuDevice(id=2): 128 bytes (128 alive at once)
    slot 2: 32 bytes at 0, %2
    slot 6: 32 bytes at 64, %3
  memory of CpuDevice(id=3): 128 bytes (128 alive at once)
    slot 3: 32 bytes at 0, %2
    slot 7: 32 bytes at 64, %3
  output sets: 1, of 8 buffers and 256 bytes
  results: %4 %6
)");
}

TEST(PlanText, OfALoopThatTheHostDecides) {
  EXPECT_EQ(plan_with("cpu:1", long_loop), R"(plan on Mesh(without axes)
  arguments: %0
segment 0, which the host decides
  host    %1:f32[50000] = while[body_jaxpr={ … } body_nconsts=0 cond_jaxpr={ … } cond_nconsts=0] %0!
  plan on Mesh(without axes)
    arguments: %0
  segment 0
    step 0: compute %1:bool[] = fused[program=[1,50000] (a:f32) b:f32/row = reduce_sum a; c:bool/row = lt b 100.0 -> c] %0!
      1 task on compute of device 0
    graph: 1 task, 0 edges
    output sets: 1, of 1 buffer and 1 byte
    results: %1
  plan on Mesh(without axes)
    arguments: %0
  segment 0
    step 0: compute %1:f32[50000] = fused[program=[1,50000] (a:f32) b:f32 = mul a 2.0; c:f32 = add b 1.0 -> c] %0!
      1 task on compute of device 0
    graph: 1 task, 0 edges
    output sets: 1, of 1 buffer and 200000 bytes
    results: %1
segment 1
  step 0: compute %2:f32[50000] = sort[dimension=0 is_stable=True num_keys=1] %1!
    1 task on compute of device 0
  graph: 1 task, 0 edges
  output sets: 1, of 1 buffer and 200000 bytes
  results: %2
)");
}

TEST(PlanText, OfALoopAsATask) {
  EXPECT_THAT(plan_with("cpu:1", short_loop),
              testing::HasSubstr("step 0: compute %1:f32[4] = flow_task[of=while program={ … } "
                                 "program={ … }] %0!\n    1 task on compute of device 0\n"));
}

}  // namespace
}  // namespace shmap
