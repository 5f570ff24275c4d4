// Products of matrices by the destructors of thread_local variables that are older than what the
// library keeps for the thread: it is gone by then.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "shmap/ops.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

using test::ChildResult;
using test::in_child;

constexpr std::int64_t kExtents[] = {3, 24, 130};

void multiply(DType dtype) {
  for (const std::int64_t n : kExtents) {
    const Array x = ones({n, n}, dtype);
    const double wanted = dtype == bool_ ? 1 : static_cast<double>(n);
    const Array y = astype(dtype == i8 ? astype(matmul(x, x), u8) : matmul(x, x), f64);
    if (max(y).item<double>() != wanted || min(y).item<double>() != wanted)
      std::printf("wrong product of %s, extent %d\n", short_name(dtype), static_cast<int>(n));
  }
}

// Blocks of memory of the sizes that the thread kept and has freed: nothing may write to them.
class FreedMemory {
 public:
  FreedMemory() {
    for (std::size_t pages = 1; pages <= 32; ++pages) {
      for (int k = 0; k < 4; ++k) {
        blocks_.push_back({std::aligned_alloc(4096, pages * 4096), pages * 4096});
        std::memset(blocks_.back().data, kByte, blocks_.back().bytes);
      }
    }
  }
  ~FreedMemory() {
    for (const Block& block : blocks_) std::free(block.data);
  }
  FreedMemory(const FreedMemory&) = delete;
  FreedMemory& operator=(const FreedMemory&) = delete;
  bool is_untouched() const {
    for (const Block& block : blocks_) {
      const auto* const bytes = static_cast<const unsigned char*>(block.data);
      for (std::size_t i = 0; i < block.bytes; ++i)
        if (bytes[i] != kByte) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned char kByte = 0x5a;
  struct Block {
    void* data;
    std::size_t bytes;
  };
  std::vector<Block> blocks_;
};

struct MultipliesAtEnd {
  bool on = false;
  DType dtype = f32;
  ~MultipliesAtEnd() {
    if (!on) return;
    const FreedMemory freed;
    multiply(dtype);
    if (!freed.is_untouched()) std::printf("freed memory was written to\n");
    std::printf("end\n");
  }
};
thread_local MultipliesAtEnd at_end;

constexpr DType kDTypes[] = {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64};

TEST(ThreadEnd, ProductsOfEachDtype) {
  for (const DType dtype : kDTypes) {
    const ChildResult r = in_child({{"SHMAP_EXECUTOR", "inline"}, {"SHMAP_DEVICES", "cpu:1"}}, [&] {
      for (int k = 0; k < 3; ++k) {
        std::thread([&] {
          at_end.on = true;
          at_end.dtype = dtype;
          multiply(dtype);
        }).join();
      }
    });
    EXPECT_EQ(r.exit_code, 0) << short_name(dtype) << ": " << r.output << " signal " << r.signal;
    EXPECT_EQ(r.output, "end\nend\nend\n") << short_name(dtype);
  }
}

TEST(ThreadEnd, ProductsOfEachDtypeByTheThreadThatExits) {
  for (const DType dtype : kDTypes) {
    const ChildResult r = in_child({{"SHMAP_EXECUTOR", "inline"}, {"SHMAP_DEVICES", "cpu:1"}}, [&] {
      at_end.on = true;
      at_end.dtype = dtype;
      multiply(dtype);
    });
    EXPECT_EQ(r.exit_code, 0) << short_name(dtype) << ": " << r.output << " signal " << r.signal;
    EXPECT_EQ(r.output, "end\n") << short_name(dtype);
  }
}

}  // namespace
}  // namespace shmap
