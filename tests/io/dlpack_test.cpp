// shmap-test: devices
// Arrays to and from DLPack tensors: shared memory, lifetimes, layouts, and invalid
// tensors.
#include "shmap/dlpack.h"

#include <dlpack/dlpack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <memory>
#include <numeric>
#include <vector>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using testing::ElementsAre;

// A tensor over floats of host memory; counts its deletions.
template <class Tensor>
struct Foreign {
  std::vector<float> values;
  std::vector<std::int64_t> shape, strides;
  Tensor tensor = {};
  int* deleted;

  static Foreign* make(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
                       int* deleted) {
    auto* self =
        new Foreign{std::vector<float>(64), std::move(shape), std::move(strides), {}, deleted};
    std::iota(self->values.begin(), self->values.end(), 0.f);
    DLTensor& t = self->tensor.dl_tensor;
    t.data = self->values.data();
    t.device = {kDLCPU, 0};
    t.ndim = static_cast<std::int32_t>(self->shape.size());
    t.dtype = {kDLFloat, 32, 1};
    t.shape = self->shape.data();
    t.strides = self->strides.empty() ? nullptr : self->strides.data();
    self->tensor.manager_ctx = self;
    self->tensor.deleter = [](Tensor* tensor) {
      auto* owner = static_cast<Foreign*>(tensor->manager_ctx);
      ++*owner->deleted;
      delete owner;
    };
    return self;
  }
};
using Plain = Foreign<DLManagedTensor>;
using Versioned = Foreign<DLManagedTensorVersioned>;

// The memory of CPU devices is the host's; that of GPUs is not.
class DLPack : public testing::Test {
 protected:
  void SetUp() override {
    if (devices()[0].kind() != DeviceKind::cpu)
      GTEST_SKIP() << "DLPack tensors here are of host memory: CPU devices only";
  }
  int deleted = 0;
};

TEST_F(DLPack, SharesMemoryUntilTheLastArrayGoes) {
  Plain* foreign = Plain::make({2, 3}, {}, &deleted);
  const float* data = foreign->values.data();
  {
    Array x = from_dlpack(&foreign->tensor);
    EXPECT_EQ(x.shape(), Shape({2, 3}));
    EXPECT_EQ(x.dtype(), f32);
    EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
    Array row = x[1];
    x = Array();
    EXPECT_EQ(deleted, 0);
    EXPECT_THAT((row + 1.f).to_vector<float>(), ElementsAre(4, 5, 6));
    DLManagedTensor* again = to_dlpack(row);
    EXPECT_EQ(again->dl_tensor.data, data + 3);
    row = Array();
    EXPECT_EQ(deleted, 0);
    again->deleter(again);
  }
  (zeros({1}) + 1.f).block_until_ready();
  EXPECT_EQ(deleted, 1);
}

TEST_F(DLPack, GoesAcrossAndBackWithoutACopy) {
  const Array x = reshape(arange(12), {3, 4}) * 1.f;
  x.block_until_ready();
  reset_counters();
  const Array y = from_dlpack(to_dlpack(x));
  const Array z = from_dlpack(to_dlpack(y));
  EXPECT_EQ(counters().copied_bytes, 0);
  EXPECT_EQ(z.to_vector<float>(), x.to_vector<float>());
}

TEST_F(DLPack, HandsOutEveryDType) {
  for (DType t : {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64}) {
    const Array x = astype(arange(2), t);
    const Array y = from_dlpack(to_dlpack_versioned(x));
    EXPECT_EQ(y.dtype(), t);
    EXPECT_EQ(astype(y, f32).to_vector<float>(), (std::vector<float>{0, 1})) << t;
  }
}

TEST_F(DLPack, DescribesWhatItHandsOut) {
  DLManagedTensorVersioned* t = to_dlpack_versioned(zeros({2, 0, 3}, bf16));
  EXPECT_EQ(t->version.major, 1u);
  EXPECT_NE(t->flags & DLPACK_FLAG_BITMASK_READ_ONLY, 0u);
  const DLTensor& d = t->dl_tensor;
  EXPECT_EQ(d.device.device_type, kDLCPU);
  EXPECT_THAT(std::vector<std::int64_t>(d.shape, d.shape + d.ndim), ElementsAre(2, 0, 3));
  EXPECT_THAT(std::vector<std::int64_t>(d.strides, d.strides + d.ndim), ElementsAre(3, 3, 1));
  EXPECT_EQ(d.dtype.code, kDLBfloat);
  t->deleter(t);
}

TEST_F(DLPack, CopiesWhatIsNotContiguous) {
  Plain* turned = Plain::make({3, 2}, {1, 3}, &deleted);
  const Array x = from_dlpack(&turned->tensor);
  EXPECT_EQ(deleted, 1);
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
  Plain* backwards = Plain::make({4}, {-1}, &deleted);
  backwards->tensor.dl_tensor.byte_offset = 3 * sizeof(float);
  EXPECT_THAT(from_dlpack(&backwards->tensor).to_vector<float>(), ElementsAre(3, 2, 1, 0));
  Plain* repeated = Plain::make({2, 2}, {0, 1}, &deleted);
  EXPECT_THAT(from_dlpack(&repeated->tensor).to_vector<float>(), ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(deleted, 3);
}

TEST_F(DLPack, SharesWhatIsReadOnly) {
  Versioned* foreign = Versioned::make({4}, {}, &deleted);
  foreign->tensor.version = {1, 0};
  foreign->tensor.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  Array x = from_dlpack(&foreign->tensor);
  EXPECT_EQ(deleted, 0);
  x = std::move(x) * 2.f;
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(deleted, 1);
}

// Memory of a producer that keeps it: no deleter.
template <class Run>
void expect_not_overwritten(Run run) {
  std::vector<float> values(4096);
  std::iota(values.begin(), values.end(), 0.f);
  const std::vector<float> given = values;
  std::int64_t shape[] = {4096};
  // More than once: jit captures and replays.
  for (int call = 0; call < 5; ++call) {
    DLManagedTensor t = {};
    t.dl_tensor = {values.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
    run(&t).block_until_ready();
    ASSERT_EQ(values, given) << "call " << call;
  }
}

TEST_F(DLPack, DonatedTensorsAreNotOverwritten) {
  expect_not_overwritten([](DLManagedTensor* t) { return from_dlpack(t) * 2.f; });
  expect_not_overwritten([](DLManagedTensor* t) { return exp(from_dlpack(t) + 1.f) * 2.f; });
  expect_not_overwritten([](DLManagedTensor* t) {
    Array x = from_dlpack(t);
    x += 1.f;
    return x;
  });
  expect_not_overwritten([](DLManagedTensor* t) { return ones({4096}) + from_dlpack(t); });
  expect_not_overwritten(
      [](DLManagedTensor* t) { return dynamic_update_slice(from_dlpack(t), ones({2}), {3}); });
  const auto f = jit([](Array x) { return x * 2.f + 1.f; });
  expect_not_overwritten([&](DLManagedTensor* t) { return f(from_dlpack(t)); });
  const auto loop = jit([](Array x) {
    return fori_loop(
        0, 3, [](Array, Array y) { return y * 2.f; }, x);
  });
  expect_not_overwritten([&](DLManagedTensor* t) { return loop(from_dlpack(t)); });
  const auto same = jit([](Array x) { return x; });
  expect_not_overwritten([&](DLManagedTensor* t) { return same(from_dlpack(t)) * 3.f; });
  const auto mapped =
      shard_map([](Array x) { return x * 2.f; }, make_mesh({8}, "i"), {P("i")}, P("i"));
  expect_not_overwritten([&](DLManagedTensor* t) { return mapped(from_dlpack(t)); });
}

// Exports arrays of the library on any kind of devices. The exported tensor and the imported array
// are owners of one array's memory.
TEST(DLPackOfArrays, AnArrayIsNotOverwrittenThroughItsExport) {
  const auto f = jit([](Array x) { return x * 2.f + 1.f; });
  const Array x = reshape(arange(4096), {64, 64}) + 0.f;
  const std::vector<float> given = x.to_vector<float>();
  for (int call = 0; call < 4; ++call) {
    (from_dlpack(to_dlpack(x)) + 100.f).block_until_ready();
    EXPECT_EQ(x.to_vector<float>(), given);
    f(from_dlpack(to_dlpack_versioned(x))).block_until_ready();
    EXPECT_EQ(x.to_vector<float>(), given);
  }
}

TEST(DLPackOfArrays, AnExportKeepsADonatedArrayAsItIs) {
  const auto f = jit([](Array x) { return x * 2.f + 1.f; });
  for (int call = 0; call < 5; ++call) {
    for (const bool under_jit : {false, true}) {
      Array x = f(arange(4096) + 0.f);  // from the third call on, in a buffer of jit's own
      const std::vector<float> given = x.to_vector<float>();
      DLManagedTensor* out = to_dlpack(x);
      const Array y = under_jit ? f(std::move(x)) : std::move(x) * 2.f;
      y.block_until_ready();
      f(arange(4096) + 0.f).block_until_ready();
      EXPECT_EQ(from_dlpack(out).to_vector<float>(), given) << call;
    }
  }
}

// A graph was captured with two parts of one tensor as arguments. Then these are two tensors at the
// same addresses: a result that lies in one of them keeps that one alive.
TEST_F(DLPack, AResultKeepsTheTensorThatItLiesIn) {
  alignas(64) float memory[32];
  int deleted = 0, deleted_b = 0;
  const auto wrap = [&](std::int64_t from, std::int64_t n, int* count) {
    Plain* const tensor = Plain::make({n}, {}, count);
    tensor->tensor.dl_tensor.data = memory + from;
    return from_dlpack(&tensor->tensor);
  };
  std::iota(memory, memory + 32, 0.f);
  const auto f = jit([](Array a, Array b) {
    return std::tuple{reshape(a, {4, 4}), reshape(b, {4, 4}), sin(a)};
  });
  for (int call = 0; call < 3; ++call) {
    const Array whole = wrap(0, 32, &deleted);
    const auto [x, y, z] = f(slice(whole, {0}, {16}), slice(whole, {16}, {32}));
    EXPECT_EQ((y[{0, 0}].item<float>()), 16);
    z.block_until_ready();
  }
  EXPECT_EQ(deleted, 3);
  deleted = 0;
  Array kept;
  {
    const Array a = wrap(0, 16, &deleted), b = wrap(16, 16, &deleted_b);
    const auto [x, y, z] = f(a, b);
    z.block_until_ready();
    kept = y;
  }
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(deleted_b, 0);
  EXPECT_EQ((kept[{0, 0}].item<float>()), 16);
  kept = Array();
  EXPECT_EQ(deleted_b, 1);
}

TEST_F(DLPack, TakesEmptyAndScalarTensors) {
  EXPECT_EQ(from_dlpack(&Plain::make({}, {}, &deleted)->tensor).item<float>(), 0);
  Plain* none = Plain::make({0, 5}, {}, &deleted);
  none->tensor.dl_tensor.data = nullptr;
  EXPECT_EQ(from_dlpack(&none->tensor).shape(), Shape({0, 5}));
  EXPECT_EQ(deleted, 2);
}

TEST_F(DLPack, RefusesWhatItCannotTake) {
  const auto refused = [&](auto change, std::initializer_list<const char*> fragments) {
    Plain* foreign = Plain::make({2, 3}, {3, 1}, &deleted);
    const int before = deleted;
    change(foreign->tensor.dl_tensor);
    expect_error<Error>([&] { from_dlpack(&foreign->tensor); }, fragments);
    EXPECT_EQ(deleted, before + 1);
  };
  refused([](DLTensor& t) { t.dtype = {kDLComplex, 64, 1}; }, {"type code 5", "wanted"});
  refused([](DLTensor& t) { t.dtype.lanes = 4; }, {"4 lanes"});
  refused([](DLTensor& t) { t.device = {kDLCUDA, 7}; }, {"device 7 of type 2", "cpu:8"});
  refused([](DLTensor& t) { t.shape[0] = -1; }, {"dim 0", "-1"});
  refused([](DLTensor& t) { t.shape[0] = t.shape[1] = std::int64_t{1} << 40; }, {"2^63"});
  refused([](DLTensor& t) { t.strides[0] = std::int64_t{1} << 62; }, {"stride"});
  refused([](DLTensor& t) { t.ndim = 1000; }, {"1000 dims"});
  refused([](DLTensor& t) { t.shape = nullptr; }, {"without a shape"});
  refused([](DLTensor& t) { t.data = nullptr; }, {"null pointer"});
  expect_error<ValueError>([] { from_dlpack(static_cast<DLManagedTensor*>(nullptr)); },
                           {"null pointer"});
  Versioned* old = Versioned::make({1}, {}, &deleted);
  old->tensor.version = {7, 2};
  const int before = deleted;
  expect_error<ValueError>([&] { from_dlpack(&old->tensor); }, {"version 7.x", "1.x"});
  EXPECT_EQ(deleted, before + 1);
}

TEST_F(DLPack, RefusesWhatItCannotHandOut) {
  const Mesh mesh = make_mesh({8}, {"i"});
  expect_error<ValueError>([&] { to_dlpack(device_put(zeros({8}), NamedSharding(mesh, P("i")))); },
                           {"to_dlpack", "split", "device_put"});
  expect_error<TypeError>([] { jit([](Array x) { return to_dlpack(x), x; })(zeros({2})); },
                          {"to_dlpack", "traced"});
  expect_error<TypeError>([] { to_dlpack(Array(1.f)); }, {"host scalar"});
  DLManagedTensor* replicated = to_dlpack(device_put(ones({3}), NamedSharding(mesh, P())));
  EXPECT_EQ(static_cast<float*>(replicated->dl_tensor.data)[2], 1.f);
  replicated->deleter(replicated);
}

}  // namespace
}  // namespace shmap
