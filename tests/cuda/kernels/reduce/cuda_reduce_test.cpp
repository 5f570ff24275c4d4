// Reductions and argmax by CUDA kernels, compared with the CPU's kernels.
#include "core/cpu/kernels/reduce/reduce.h"

#include <vector>

#include "core/cpu/kernels/reduce/arg_reduce.h"
#include "cuda/kernels/reduce/reduce.h"
#include "shmap/error.h"
#include "tests/cuda/kernels/device_memory.h"
#include "tests/cuda/kernels/sample_items.h"

namespace shmap::cuda {
namespace {

using testing::Bytes;
using testing::DeviceBytes;
using testing::expect_items;
using testing::Items;
using testing::items_of;
using testing::kNumericDTypes;
using testing::on_stream;

class CudaReduce : public testing::OnGpu {};

constexpr std::pair<Reduction, Reduction> kOps[] = {
    {Reduction::sum, Reduction::sum}, {Reduction::prod, Reduction::prod},
    {Reduction::max, Reduction::max}, {Reduction::min, Reduction::min},
    {Reduction::any, Reduction::any}, {Reduction::all, Reduction::all}};

ReduceRuns runs_of(std::initializer_list<std::int64_t> kept_reduced_in_turns) {
  ReduceRuns runs;
  int i = 0;
  for (std::int64_t extent : kept_reduced_in_turns) {
    (i % 2 == 0 ? runs.kept : runs.reduced)[i / 2] = extent;
    runs.count = i / 2;
    ++i;
  }
  return runs;
}

std::int64_t kept_of(const ReduceRuns& runs) {
  std::int64_t n = 1;
  for (int g = 0; g <= runs.count; ++g) n *= runs.kept[g];
  return n;
}
std::int64_t reduced_of(const ReduceRuns& runs) {
  std::int64_t n = 1;
  for (int g = 0; g < runs.count; ++g) n *= runs.reduced[g];
  return n;
}

// The array with each result's elements side by side: [kept, reduced].
Bytes rows_of(const ReduceRuns& runs, const Bytes& in, int item) {
  const std::int64_t results = kept_of(runs), elements = reduced_of(runs);
  Bytes rows(in.size());
  for (std::int64_t n = 0; n < results * elements; ++n) {
    std::int64_t rest = n, result = 0, element = 0, of_results = 1, of_elements = 1;
    for (int g = runs.count; g >= 0; --g) {
      result += rest % runs.kept[g] * of_results;
      of_results *= runs.kept[g];
      rest /= runs.kept[g];
      if (g == 0) break;
      element += rest % runs.reduced[g - 1] * of_elements;
      of_elements *= runs.reduced[g - 1];
      rest /= runs.reduced[g - 1];
    }
    std::memcpy(rows.data() + (result * elements + element) * item, in.data() + n * item,
                static_cast<std::size_t>(item));
  }
  return rows;
}

Bytes reduced_on_gpu(Reduction op, DType dtype, const ReduceRuns& runs, const Bytes& in,
                     std::int64_t offset = 0) {
  const DeviceBytes from(in, offset * itemsize(dtype)), to(kept_of(runs) * itemsize(dtype)),
      scratch(reduce_scratch(dtype, runs));
  on_stream([&](void* stream) {
    reduce(op, dtype, runs, from.data(), to.data(), scratch.data(), stream);
  });
  scratch.read<std::uint8_t>();
  return to.read<std::uint8_t>();
}

void check(const ReduceRuns& runs, Items items, double tolerance, std::int64_t offset = 0) {
  const std::int64_t results = kept_of(runs), elements = reduced_of(runs);
  for (DType dtype : kNumericDTypes) {
    for (const auto& [op, cpu_op] : kOps) {
      const cpu::ReduceFn on_cpu = cpu::reduce_kernel(cpu_op, dtype);
      if (on_cpu == nullptr) continue;
      const bool product = op == Reduction::prod && items == Items::small;
      const Bytes in = items_of(dtype, results * elements, product ? Items::factors : items, 7);
      Bytes want(static_cast<std::size_t>(results * itemsize(dtype)));
      on_cpu(rows_of(runs, in, itemsize(dtype)).data(), want.data(), results, elements, 1);
      expect_items(dtype, reduced_on_gpu(op, dtype, runs, in, offset), want, tolerance,
                   "reduction " + std::to_string(static_cast<int>(op)) + " of " +
                       std::to_string(results) + " x " + std::to_string(elements));
    }
  }
}

TEST_F(CudaReduce, Rows) {
  for (std::int64_t n : {1, 2, 3, 7, 16, 31, 32, 33, 97, 600}) {
    check(runs_of({5, n, 1}), Items::small, 0);
    check(runs_of({3, n, 1}), Items::small, 0, 1);  // rows that begin anywhere
  }
}

TEST_F(CudaReduce, Columns) {
  for (std::int64_t inner : {2, 3, 31, 32, 33, 130})
    check(runs_of({2, 37, inner}), Items::small, 0);
  check(runs_of({1, 1009, 3}), Items::small, 0);
}

TEST_F(CudaReduce, SeveralRuns) {
  check(runs_of({1, 3, 5, 7, 1}), Items::small, 0);
  check(runs_of({2, 3, 2, 5, 4, 3, 2}), Items::small, 0);
  check(runs_of({1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}), Items::small, 0);
}

TEST_F(CudaReduce, NaNsInfinitiesAndWrapping) {
  check(runs_of({7, 5, 1}), Items::special, 0);
  check(runs_of({3, 5, 4}), Items::special, 0);
}

TEST_F(CudaReduce, NothingGivesTheIdentity) {
  check(runs_of({3, 0, 1}), Items::small, 0);
  check(runs_of({2, 0, 5}), Items::small, 0);
  check(runs_of({0, 3, 2}), Items::small, 0);
}

// Few results of many elements: partial results of several blocks.
TEST_F(CudaReduce, ManyBlocks) {
  for (const ReduceRuns& runs :
       {runs_of({1, 100003, 1}), runs_of({2, 50021, 1}), runs_of({1, 30011, 3}),
        runs_of({1, 5003, 32}), runs_of({1, 307, 1, 101, 3})}) {
    for (DType dtype : {f32, bf16, i8, u64, f64}) {
      if (itemsize(dtype) >= 4) {
        ASSERT_GT(reduce_scratch(dtype, runs), 0);
      }
      const std::int64_t results = kept_of(runs), elements = reduced_of(runs);
      for (const auto& [op, cpu_op] : kOps) {
        const cpu::ReduceFn on_cpu = cpu::reduce_kernel(cpu_op, dtype);
        if (on_cpu == nullptr || op == Reduction::prod) continue;
        const Bytes in = items_of(dtype, results * elements, Items::small, 11);
        Bytes want(static_cast<std::size_t>(results * itemsize(dtype)));
        on_cpu(rows_of(runs, in, itemsize(dtype)).data(), want.data(), results, elements, 1);
        expect_items(dtype, reduced_on_gpu(op, dtype, runs, in), want, 0, "many blocks");
      }
    }
  }
}

TEST_F(CudaReduce, OnlyNegativeZerosSumToOne) {
  const Bytes in = [] {
    Bytes bytes(5 * sizeof(float));
    for (int i = 0; i < 5; ++i) bytes[static_cast<std::size_t>(4 * i + 3)] = 0x80;
    return bytes;
  }();
  const Bytes want(in.begin(), in.begin() + 4);
  EXPECT_EQ(reduced_on_gpu(Reduction::sum, f32, runs_of({1, 5, 1}), in), want);
  EXPECT_EQ(reduced_on_gpu(Reduction::sum, f32, runs_of({1, 5, 1, 1, 1}), in), want);
}

TEST_F(CudaReduce, RefusesWhatHasNoReduction) {
  const DeviceBytes memory(64);
  EXPECT_THROW(reduce(Reduction::sum, bool_, runs_of({1, 3, 1}), memory.data(), memory.data(),
                      nullptr, nullptr),
               TypeError);
  EXPECT_THROW(reduce(Reduction::any, f32, runs_of({1, 3, 1}), memory.data(), memory.data(),
                      nullptr, nullptr),
               TypeError);
  EXPECT_THROW(arg_reduce(ArgReduction::argmax, prng_key, i32, 1, 3, 1, memory.data(),
                          memory.data(), nullptr, nullptr),
               TypeError);
  EXPECT_THROW(reduce(Reduction::sum, f32, runs_of({std::int64_t{1} << 32, 2, 2}), memory.data(),
                      memory.data(), nullptr, nullptr),
               ValueError);
}

void check_arg(std::int64_t outer, std::int64_t reduced, std::int64_t inner, bool all_types) {
  for (DType dtype : kNumericDTypes) {
    if (!all_types && dtype != f32 && dtype != i8 && dtype != f16) continue;
    const Bytes in = items_of(dtype, outer * reduced * inner, Items::special, 3);
    for (DType index : {i32, i64}) {
      for (const ArgReduction op : {ArgReduction::argmax, ArgReduction::argmin}) {
        Bytes want(static_cast<std::size_t>(outer * inner * itemsize(index)));
        cpu::arg_reduce_kernel(op, dtype, index)(in.data(), want.data(), outer, reduced, inner);
        const DeviceBytes from(in), to(static_cast<std::int64_t>(want.size())),
            scratch(arg_reduce_scratch(outer, reduced, inner));
        on_stream([&](void* stream) {
          arg_reduce(op, dtype, index, outer, reduced, inner, from.data(), to.data(),
                     scratch.data(), stream);
        });
        expect_items(index, to.read<std::uint8_t>(), want, 0,
                     "argmax along " + std::to_string(reduced) + " of " + to_string(dtype));
      }
    }
  }
}

TEST_F(CudaReduce, ArgMax) {
  for (std::int64_t n : {1, 2, 33, 301}) check_arg(3, n, 1, true);
  check_arg(2, 17, 5, true);
  check_arg(1, 3, 200, true);
  ASSERT_GT(arg_reduce_scratch(1, 60013, 1), 0);
  check_arg(1, 60013, 1, false);
  check_arg(1, 20011, 3, false);
}

}  // namespace
}  // namespace shmap::cuda
