// CUDA's elementwise kernels against the CPU's.
#include <cmath>

#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/elementwise/compare.h"
#include "core/cpu/kernels/elementwise/select.h"
#include "core/cpu/kernels/elementwise/unary.h"
#include "core/ops/elementwise.h"
#include "cuda/kernels/elementwise/elementwise.h"
#include "cuda/kernels/elementwise/fill.h"
#include "tests/cpu/kernels/kernel_testing.h"
#include "tests/cuda/kernels/device_memory.h"

namespace shmap::cuda {
namespace {

using namespace testing;
using cpu::testing::Element;
using cpu::testing::elements;
using cpu::testing::kIsHalf;
using cpu::testing::kIsReal;
using cpu::testing::kNumericDTypes;
using cpu::testing::to_real;
using cpu::testing::ulps;
using cpu::testing::with_type;

constexpr std::int64_t kSizes[] = {0, 1, 31, 33, 1000};

class CudaElementwise : public OnGpu {};

// Compares results that are not rounded the same everywhere: transcendentals may differ by twice
// the error that either may have.
template <class R>
bool close(R got, R want, bool exact) {
  if constexpr (kIsReal<R>) {
    const long double g = to_real(got), w = to_real(want);
    if (std::isnan(w)) return std::isnan(g);
    if (g == w) return std::signbit(g) == std::signbit(w);
    if (exact) return false;
    return ulps(got, w) <= (kIsHalf<R> ? 1 : 9);
  } else {
    return got == want;
  }
}

template <class R>
void expect_close(const std::vector<R>& got, const std::vector<R>& want, bool exact) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(close(got[i], want[i], exact))
        << i << " of " << got.size() << ": " << static_cast<double>(to_real(got[i])) << ", not "
        << static_cast<double>(to_real(want[i]));
  }
}

// An operand in each of its forms. Arrays begin `offset` elements after an aligned address.
template <class T>
struct Given {
  Given(std::vector<Element<T>> v, Operand::Kind kind, std::int64_t offset)
      : host(std::move(v)),
        device(host, offset * static_cast<std::int64_t>(sizeof(Element<T>))),
        kind(kind) {}
  Operand operand() const { return {kind == Operand::literal ? host.data() : device.data(), kind}; }
  std::vector<Element<T>> host;
  DeviceBytes device;
  Operand::Kind kind;
};

template <class T, class R>
void check_unary(UnaryFn got_fn, cpu::UnaryFn want_fn, bool exact) {
  ASSERT_NE(got_fn, nullptr);
  ASSERT_NE(want_fn, nullptr);
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t offset : {0, 1}) {
      const Given<T> in(elements<T>(n, 3 + static_cast<unsigned>(n)), Operand::whole, offset);
      std::vector<Element<R>> want(in.host.size());
      want_fn(in.host.data(), want.data(), n);
      const DeviceBytes out(n * static_cast<std::int64_t>(sizeof(Element<R>)), 0);
      on_stream([&](void* stream) { got_fn(in.operand(), out.data(), n, stream); });
      expect_close(out.read<Element<R>>(), want, exact);
      if (sizeof(Element<T>) != sizeof(Element<R>)) continue;
      on_stream([&](void* stream) { got_fn(in.operand(), in.device.data(), n, stream); });
      expect_close(in.device.template read<Element<R>>(), want, exact);
    }
  }
  const Given<T> literal(elements<T>(1, 8), Operand::literal, 0);
  std::vector<Element<R>> want(1);
  want_fn(literal.host.data(), want.data(), 1);
  const DeviceBytes out(sizeof(Element<R>));
  on_stream([&](void* stream) { got_fn(literal.operand(), out.data(), 1, stream); });
  expect_close(out.read<Element<R>>(), want, exact);
}

bool rounds_everywhere_alike(UnaryOp op) {
  switch (op) {
    case UnaryOp::neg:
    case UnaryOp::abs:
    case UnaryOp::sign:
    case UnaryOp::square:
    case UnaryOp::not_:
    case UnaryOp::floor:
    case UnaryOp::ceil:
    case UnaryOp::round:
    case UnaryOp::sqrt:
    case UnaryOp::rsqrt:
    case UnaryOp::is_finite:
      return true;
    default:
      return false;
  }
}

TEST_F(CudaElementwise, UnaryOpsAreTheCpus) {
  const auto check = [](UnaryOp op, Domain domain, const char* name) {
    for (const DType dtype : kNumericDTypes) {
      SCOPED_TRACE(std::string(name) + " of " + to_string(dtype));
      if (!in_domain(dtype, domain)) continue;
      with_type(dtype, [&]<class T>() {
        if (op == UnaryOp::is_finite)
          check_unary<T, bool>(unary_kernel(op, dtype), cpu::unary_kernel(op, dtype), true);
        else
          check_unary<T, T>(unary_kernel(op, dtype), cpu::unary_kernel(op, dtype),
                            rounds_everywhere_alike(op));
      });
    }
    EXPECT_EQ(unary_kernel(op, DType::prng_key), nullptr);
  };
#define SHMAP_CHECK(name, domain, ...) check(UnaryOp::name, Domain::domain, #name);
  SHMAP_UNARY_OPS(SHMAP_CHECK)
  SHMAP_PREDICATE_OPS(SHMAP_CHECK)
#undef SHMAP_CHECK
}

// All forms of two operands, with separate results and in place.
template <class T, class R>
void check_binary(BinaryFn got_fn, cpu::BinaryFn want_fn, bool exact) {
  ASSERT_NE(got_fn, nullptr);
  ASSERT_NE(want_fn, nullptr);
  const Operand::Kind kinds[] = {Operand::whole, Operand::scalar, Operand::literal};
  for (const std::int64_t n : kSizes) {
    for (int form = 0; form < 9; ++form) {
      const Operand::Kind a_kind = kinds[form % 3], b_kind = kinds[form / 3];
      const std::int64_t offset = n == 33 ? 1 : 0;
      const auto some = [&](Operand::Kind kind, unsigned seed) {
        return elements<T>(kind == Operand::whole ? n : 1, seed + static_cast<unsigned>(n));
      };
      const Given<T> a(some(a_kind, 5), a_kind, offset), b(some(b_kind, 6), b_kind, 0);
      std::vector<Element<R>> want(static_cast<std::size_t>(n));
      want_fn(a.host.data(), a_kind != Operand::whole, b.host.data(), b_kind != Operand::whole,
              want.data(), n);
      const DeviceBytes out(n * static_cast<std::int64_t>(sizeof(Element<R>)));
      on_stream([&](void* s) { got_fn(a.operand(), b.operand(), out.data(), n, s); });
      expect_close(out.read<Element<R>>(), want, exact);
      if (sizeof(Element<T>) != sizeof(Element<R>) || a_kind != Operand::whole) continue;
      on_stream([&](void* s) { got_fn(a.operand(), b.operand(), a.device.data(), n, s); });
      expect_close(a.device.template read<Element<R>>(), want, exact);
    }
  }
}

TEST_F(CudaElementwise, BinaryOpsAreTheCpus) {
  const auto check = [](BinaryOp op, Domain domain, const char* name) {
    for (const DType dtype : kNumericDTypes) {
      SCOPED_TRACE(std::string(name) + " of " + to_string(dtype));
      if (!in_domain(dtype, domain)) {
        EXPECT_EQ(binary_kernel(op, dtype), nullptr);
        continue;
      }
      const bool exact = op != BinaryOp::pow && op != BinaryOp::atan2;
      with_type(dtype, [&]<class T>() {
        check_binary<T, T>(binary_kernel(op, dtype), cpu::binary_kernel(op, dtype), exact);
      });
    }
    EXPECT_EQ(binary_kernel(op, DType::prng_key), nullptr);
  };
#define SHMAP_CHECK(name, domain, ...) check(BinaryOp::name, Domain::domain, #name);
  SHMAP_BINARY_OPS(SHMAP_CHECK)
#undef SHMAP_CHECK
}

TEST_F(CudaElementwise, ComparisonsAreTheCpus) {
  const auto check = [](CompareOp op, const char* name) {
    for (const DType dtype : kNumericDTypes) {
      SCOPED_TRACE(std::string(name) + " of " + to_string(dtype));
      with_type(dtype, [&]<class T>() {
        check_binary<T, bool>(compare_kernel(op, dtype), cpu::compare_kernel(op, dtype), true);
      });
    }
    EXPECT_EQ(compare_kernel(op, DType::prng_key), nullptr);
  };
#define SHMAP_CHECK(name, domain, ...) check(CompareOp::name, #name);
  SHMAP_COMPARE_OPS(SHMAP_CHECK)
#undef SHMAP_CHECK
}

TEST_F(CudaElementwise, ConversionsAreTheCpus) {
  for (const DType from : kNumericDTypes) {
    for (const DType to : kNumericDTypes) {
      SCOPED_TRACE(to_string(from) + " to " + to_string(to));
      with_type(from, [&]<class From>() {
        with_type(to, [&]<class To>() {
          check_unary<From, To>(cast_kernel(from, to), cpu::cast_kernel(from, to), true);
        });
      });
    }
    EXPECT_EQ(cast_kernel(from, DType::prng_key), nullptr);
    EXPECT_EQ(cast_kernel(DType::prng_key, from), nullptr);
  }
}

// Uses many blocks, of which the last has less work.
TEST_F(CudaElementwise, ManyBlocks) {
  constexpr std::int64_t n = 1'000'003;
  const Given<float> a(elements<float>(n, 1), Operand::whole, 0);
  const Given<float> b(elements<float>(n, 2), Operand::whole, 1);
  std::vector<float> want(a.host.size());
  cpu::binary_kernel(BinaryOp::add, f32)(a.host.data(), false, b.host.data(), false, want.data(),
                                         n);
  const DeviceBytes out(n * 4, 8);
  on_stream([&](void* stream) {
    binary_kernel(BinaryOp::add, f32)(a.operand(), b.operand(), out.data(), n, stream);
  });
  expect_close(out.read<float>(), want, true);
}

template <class T>
void check_select(std::int64_t n, int form) {
  const auto kind = [&](int bit) {
    return (form >> bit & 1) == 0 ? Operand::whole : bit == 1 ? Operand::literal : Operand::scalar;
  };
  const auto size = [&](int bit) { return (form >> bit & 1) == 0 ? n : 1; };
  const Given<bool> pred(elements<bool>(size(0), 4), kind(0), 1);
  const Given<T> no(elements<T>(size(1), 5), kind(1), 0), yes(elements<T>(size(2), 6), kind(2), 0);
  std::vector<Element<T>> want(static_cast<std::size_t>(n));
  cpu::select(pred.host.data(), form & 1, yes.host.data(), form & 4, no.host.data(), form & 2,
              want.data(), sizeof(Element<T>), n);
  const DeviceBytes out(n * static_cast<std::int64_t>(sizeof(Element<T>)));
  on_stream([&](void* stream) {
    select(pred.operand(), no.operand(), yes.operand(), out.data(), sizeof(Element<T>), n, stream);
  });
  const auto got = out.read<Element<T>>();
  ASSERT_EQ(got.size(), want.size());
  EXPECT_TRUE(got.empty() || std::memcmp(got.data(), want.data(), got.size() * sizeof(got[0])) == 0)
      << "form " << form << " of " << n;
}

template <class T>
void check_clamp(DType dtype, std::int64_t n, int form) {
  const bool low_scalar = form & 1, high_scalar = form & 2;
  const Given<T> low(elements<T>(low_scalar ? 1 : n, 4),
                     low_scalar ? Operand::literal : Operand::whole, 0);
  const Given<T> high(elements<T>(high_scalar ? 1 : n, 5),
                      high_scalar ? Operand::scalar : Operand::whole, 1);
  const Given<T> x(elements<T>(n, 6), Operand::whole, 0);
  std::vector<Element<T>> want(static_cast<std::size_t>(n));
  cpu::clamp(dtype, low.host.data(), low_scalar, x.host.data(), high.host.data(), high_scalar,
             want.data(), n);
  on_stream([&](void* stream) {
    clamp(dtype, low.operand(), x.operand(), high.operand(), x.device.data(), n, stream);
  });
  expect_close(x.device.template read<Element<T>>(), want, true);
}

TEST_F(CudaElementwise, ChoicesAreTheCpus) {
  for (const DType dtype : kNumericDTypes) {
    SCOPED_TRACE(to_string(dtype));
    for (const std::int64_t n : kSizes) {
      with_type(dtype, [&]<class T>() {
        for (int form = 0; form < 8; ++form) check_select<T>(n, form);
        for (int form = 0; form < 4; ++form) check_clamp<T>(dtype, n, form);
      });
    }
  }
}

// A dtype or a size without a kernel is an error: otherwise the result would be whatever lay there.
TEST_F(CudaElementwise, ElementsWithoutAKernelAreAnError) {
  const Given<std::uint64_t> x(elements<std::uint64_t>(4, 1), Operand::whole, 0);
  on_stream([&](void* stream) {
    const Operand in = x.operand();
    EXPECT_THROW(clamp(DType::prng_key, in, in, in, x.device.data(), 4, stream), Error);
    EXPECT_THROW(select(in, in, in, x.device.data(), 3, 4, stream), Error);
    EXPECT_THROW(fill(x.device.data(), in, 3, 4, stream), Error);
    EXPECT_THROW(iota(DType::bool_, x.device.data(), 1, 4, 1, stream), Error);
  });
}

}  // namespace
}  // namespace shmap::cuda
