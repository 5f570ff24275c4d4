// gather, scatter_add and slices at computed offsets by CUDA kernels, compared with the CPU's
// kernels.
#include "core/cpu/kernels/indexing/gather.h"

#include "core/cpu/kernels/indexing/scatter.h"
#include "core/cpu/kernels/move/copy.h"
#include "core/ops/slicing.h"
#include "cuda/kernels/indexing/gather.h"
#include "cuda/kernels/indexing/slicing.h"
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

class CudaGather : public testing::OnGpu {};

struct Case {
  const char* what;
  Shape operand, indices, slice_sizes;
  SliceDims dims;
};

std::vector<Case> cases() {
  return {
      {"rows", {50, 8}, {40, 1}, {1, 8}, {Dims{1}, Dims{0}, Dims{0}, {}, {}}},
      {"wide rows", {7, 64}, {3, 5, 1}, {1, 64}, {Dims{2}, Dims{0}, Dims{0}, {}, {}}},
      {"items", {13}, {100, 1}, {1}, {{}, Dims{0}, Dims{0}, {}, {}}},
      {"columns", {6, 11}, {9, 1}, {6, 1}, {Dims{0}, Dims{1}, Dims{1}, {}, {}}},
      {"points", {5, 6, 7}, {31, 2}, {1, 6, 1}, {Dims{1}, Dims{0, 2}, Dims{2, 0}, {}, {}}},
      {"overlapping windows", {9, 10}, {12, 2}, {3, 4}, {Dims{1, 2}, {}, Dims{0, 1}, {}, {}}},
      {"windows in front", {9, 10}, {12, 1}, {3, 10}, {Dims{0, 1}, {}, Dims{0}, {}, {}}},
      {"batched", {4, 9, 3}, {4, 6, 1}, {1, 1, 3}, {Dims{2}, Dims{1}, Dims{1}, Dims{0}, Dims{0}}},
      {"one window", {8, 8}, {2}, {2, 3}, {Dims{0, 1}, {}, Dims{0, 1}, {}, {}}},
      {"no index", {3, 4}, {5, 0}, {3, 4}, {Dims{1, 2}, {}, {}, {}, {}}},
      {"a scalar", {}, {5, 0}, {}, {}},
      {"nothing", {5, 3}, {0, 1}, {1, 3}, {Dims{1}, Dims{0}, Dims{0}, {}, {}}},
      {"empty slices", {5, 3}, {4, 1}, {1, 0}, {Dims{1}, Dims{0}, Dims{0}, {}, {}}},
      {"many", {97}, {5000, 1}, {1}, {{}, Dims{0}, Dims{0}, {}, {}}},
  };
}

// Indices from a little below 0 (unsigned types: from 0) to a little beyond the longest dim.
Bytes indices_of(DType dtype, const Shape& shape, std::int64_t most) {
  const std::int64_t n = shape.num_elements();
  Bytes bytes(static_cast<std::size_t>(n * itemsize(dtype)));
  std::mt19937 random(17);
  testing::with_type(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t low = is_signed_int(dtype) ? -2 : 0;
      const auto v = static_cast<double>(
          low + static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 4)));
      const T item = static_cast<T>(v);
      std::memcpy(bytes.data() + i * itemsize(dtype), &item, sizeof(T));
    }
  });
  return bytes;
}

// The options of a run.
struct How {
  DType index = i32;
  bool clip = false, from_end = false;
};

Slices slices_of(const Case& c, const How& how) {
  Slices s;
  s.dims = c.dims;
  s.operand_shape = c.operand;
  s.indices_shape = c.indices;
  s.slice_sizes = c.slice_sizes;
  s.index_dtype = how.index;
  s.mode = how.clip ? IndexMode::clip : IndexMode::fill_or_drop;
  s.from_end = how.from_end;
  s.slices_shape = cpu::gather_shape({s});
  return s;
}

std::int64_t longest(const Shape& shape) {
  return shape.empty() ? 0 : *std::max_element(shape.begin(), shape.end());
}

void check_gather(const Case& c, DType dtype, const How& how, std::int64_t offset) {
  const Bytes operand = items_of(dtype, c.operand.num_elements(), Items::special, 21);
  const Bytes indices = indices_of(how.index, c.indices, longest(c.operand));
  Slices s = slices_of(c, how);
  cpu::Gather g{s};
  const std::uint64_t fill = 0x8123456789abcdef;
  g.itemsize = itemsize(dtype);
  g.operand = operand.data();
  g.indices = indices.data();
  g.fill = &fill;
  Bytes want(static_cast<std::size_t>(s.slices_shape.num_elements() * g.itemsize));
  g.out = want.data();
  cpu::gather(g);
  const DeviceBytes from(operand, offset * g.itemsize), at(indices),
      to(static_cast<std::int64_t>(want.size()), offset * g.itemsize);
  s.indices = at.data();
  on_stream([&](void* stream) { gather(s, g.itemsize, from.data(), fill, to.data(), stream); });
  EXPECT_EQ(to.read<std::uint8_t>(), want) << c.what << " of " << to_string(dtype);
}

TEST_F(CudaGather, Gather) {
  for (const Case& c : cases()) {
    for (bool clip : {true, false}) {
      for (bool from_end : {true, false}) {
        for (DType dtype : {u8, f16, f32, f64}) check_gather(c, dtype, {i32, clip, from_end}, 0);
        check_gather(c, u8, {i64, clip, from_end}, 3);
        for (DType index : {i8, i16, i64, u8, u16, u32, u64})
          check_gather(c, f32, {index, clip, from_end}, 1);
      }
    }
  }
}

// -1 is the last item; what is still negative, or beyond the end, is out of bounds.
TEST_F(CudaGather, NegativeIndicesCountFromTheEnd) {
  const DeviceBytes from(std::vector<float>{10, 20, 30}), to(16),
      at(std::vector<std::int32_t>{-1, -3, -4, 3});
  const Case c = {"", {3}, {4, 1}, {1}, {{}, Dims{0}, Dims{0}, {}, {}}};
  for (const bool clip : {false, true}) {
    Slices s = slices_of(c, {i32, clip, true});
    s.indices = at.data();
    on_stream([&](void* stream) { gather(s, 4, from.data(), 0, to.data(), stream); });
    const std::vector<float> want =
        clip ? std::vector<float>{30, 10, 10, 30} : std::vector<float>{30, 10, 0, 0};
    EXPECT_EQ(to.read<float>(), want);
  }
}

TEST_F(CudaGather, OfALiteral) {
  const DeviceBytes to(12), at(Bytes{});
  Slices s = slices_of(Case{"", {}, {3, 0}, {}, {}}, {i32, true});
  s.indices = at.data();
  on_stream([&](void* stream) { gather(s, 4, nullptr, 77, to.data(), stream); });
  EXPECT_EQ(to.read<std::int32_t>(), (std::vector<std::int32_t>{77, 77, 77}));
}

void check_scatter(const Case& c, DType dtype, const How& how) {
  Slices slices = slices_of(c, how);
  Bytes want = items_of(dtype, c.operand.num_elements(), Items::small, 31);
  Bytes updates = items_of(dtype, slices.slices_shape.num_elements(), Items::small, 32);
  if (is_floating(dtype)) {  // whose sums depend on their order
    testing::with_type(dtype, [&]<class T>() {
      if constexpr (!std::is_integral_v<T>) {
        for (std::size_t i = 0; i < updates.size(); i += sizeof(T)) {
          const T item(static_cast<float>(i % 13) * 0.3713f + static_cast<float>(i % 5) * 100.1f);
          std::memcpy(updates.data() + i, &item, sizeof(T));
        }
      }
    });
  }
  const Bytes indices = indices_of(how.index, c.indices, longest(c.operand));
  const DeviceBytes to(want), at(indices), from(updates);
  slices.indices = indices.data();
  const cpu::Scatter s{slices, ScatterKind::add, dtype, want.data(), updates.data()};
  if (!want.empty()) cpu::scatter(s);
  Scatter add;
  add.slices = slices;
  add.slices.indices = at.data();
  add.dtype = dtype;
  add.operand = to.data();
  add.updates = from.data();
  const DeviceBytes scratch(scatter_scratch(add));
  on_stream([&](void* stream) { scatter(add, scratch.data(), stream); });
  scratch.read<std::uint8_t>();
  EXPECT_EQ(to.read<std::uint8_t>(), want) << c.what << " of " << to_string(dtype);
}

TEST_F(CudaGather, ScatterAddInTheOrderOfTheCpu) {
  for (const Case& c : cases()) {
    for (bool clip : {true, false}) {
      for (DType dtype : kNumericDTypes) check_scatter(c, dtype, {i32, clip});
      for (DType index : {i8, u8, i64}) {
        for (bool from_end : {true, false}) check_scatter(c, f32, {index, clip, from_end});
      }
    }
  }
}

TEST_F(CudaGather, ScatterAddOfALiteral) {
  const DeviceBytes to(std::vector<float>{1, 2, 3}), at(std::vector<std::int32_t>{1});
  const Case c = {"", {3}, {1}, {1}, {{}, Dims{0}, Dims{0}, {}, {}}};
  Scatter add;
  add.slices = slices_of(c, {});
  add.slices.indices = at.data();
  add.operand = to.data();
  const float value = 5;
  std::memcpy(&add.literal, &value, sizeof value);
  const DeviceBytes scratch(scatter_scratch(add));
  on_stream([&](void* stream) { scatter(add, scratch.data(), stream); });
  EXPECT_EQ(to.read<float>(), (std::vector<float>{1, 7, 3}));
}

TEST_F(CudaGather, RefusesIndicesThatAreNoIntegers) {
  Slices s = slices_of(cases()[0], {f32, true});
  EXPECT_THROW(gather(s, 4, nullptr, 0, nullptr, nullptr), TypeError);
}

// --- slices at computed offsets

struct Part {
  Shape whole, part;
  std::vector<std::int64_t> starts;
};

std::vector<Part> parts() {
  return {{{10}, {3}, {4}},           {{10}, {3}, {-2}},
          {{10}, {3}, {9}},           {{10}, {3}, {-100}},
          {{8, 64}, {2, 64}, {5, 0}}, {{8, 64}, {2, 16}, {5, 16}},
          {{8, 65}, {2, 15}, {1, 7}}, {{4, 1, 6, 5}, {2, 1, 3, 5}, {1, 0, 2, 0}},
          {{4, 6}, {4, 6}, {3, 3}},   {{4, 6}, {1, 1}, {3, 5}},
          {{4, 6}, {0, 6}, {3, 0}},   {{3, 4, 5, 2}, {2, 2, 2, 1}, {1, -1, 3, 1}}};
}

// The box of a slice in the whole array, on the host; `to_whole`: the slice is written.
void move_on_host(const Part& p, int item, std::uint8_t* whole, std::uint8_t* part, bool to_whole) {
  const std::int64_t n = p.part.num_elements();
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, at = 0, stride = 1;
    for (int d = p.whole.rank() - 1; d >= 0; --d) {
      const auto u = static_cast<std::size_t>(d);
      at += (rest % p.part[u] + clamp_start(p.starts[u], p.whole[u], p.part[u])) * stride;
      rest /= p.part[u];
      stride *= p.whole[u];
    }
    std::memcpy(to_whole ? whole + at * item : part + i * item,
                to_whole ? part + i * item : whole + at * item, static_cast<std::size_t>(item));
  }
}

void check_parts(DType dtype, std::int64_t offset, unsigned literals) {
  const int item = itemsize(dtype);
  for (const Part& p : parts()) {
    Bytes whole = items_of(dtype, p.whole.num_elements(), Items::special, 41);
    Bytes part(static_cast<std::size_t>(p.part.num_elements() * item));
    std::vector<DeviceBytes> at;
    std::vector<SliceStart> starts;
    for (std::size_t d = 0; d < p.starts.size(); ++d) {
      at.emplace_back(std::vector<std::int64_t>{p.starts[d]});
      const bool literal = (literals >> d & 1u) != 0;
      starts.push_back(
          {literal ? static_cast<const void*>(&p.starts[d]) : at.back().data(), i64, literal});
    }
    const DeviceBytes of_whole(whole, offset * item);
    const DeviceBytes taken(static_cast<std::int64_t>(part.size()));
    move_on_host(p, item, whole.data(), part.data(), false);
    on_stream([&](void* stream) {
      dynamic_slice(item, p.whole, p.part, starts.data(), of_whole.data(), taken.data(), stream);
    });
    EXPECT_EQ(taken.read<std::uint8_t>(), part) << p.whole << " " << p.part;

    Bytes update = items_of(dtype, p.part.num_elements(), Items::special, 42);
    const DeviceBytes from(update);
    move_on_host(p, item, whole.data(), update.data(), true);
    on_stream([&](void* stream) {
      dynamic_update_slice(item, p.whole, p.part, starts.data(), from.data(), of_whole.data(),
                           stream);
    });
    EXPECT_EQ(of_whole.read<std::uint8_t>(), whole) << p.whole << " " << p.part;
  }
}

TEST_F(CudaGather, PartsAtComputedPlaces) {
  for (DType dtype : {i8, f16, f32, f64}) {
    check_parts(dtype, 0, 0);
    check_parts(dtype, 1, 0);
    check_parts(dtype, 0, 1);
    check_parts(dtype, 0, 0xf);
  }
}

}  // namespace
}  // namespace shmap::cuda
