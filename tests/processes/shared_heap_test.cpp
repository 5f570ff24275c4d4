// Memory that the processes of a node share, and its allocation.
#include "core/processes/shared_heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace shmap {
namespace {

class SharedHeapTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    heap_ = SharedHeap::make(std::numeric_limits<std::int64_t>::max(), 1);
  }
  void SetUp() override {
    ASSERT_NE(heap_, nullptr);
    EXPECT_EQ(SharedHeap::of_process(), heap_);
  }
  // The bytes of the machine's memory that the file occupies.
  static std::int64_t held() {
    struct stat s;
    EXPECT_EQ(fstat(heap_->file(), &s), 0);
    return s.st_blocks * 512;
  }
  static SharedHeap* heap_;
};
SharedHeap* SharedHeapTest::heap_ = nullptr;

TEST_F(SharedHeapTest, PartsDoNotOverlapAndAreAligned) {
  std::vector<std::pair<std::byte*, std::int64_t>> parts;
  for (const std::int64_t bytes : {1L, 4096L, 10'000L, 3L << 20, 5000L, 2L << 20}) {
    auto* data = static_cast<std::byte*>(heap_->allocate(bytes));
    ASSERT_NE(data, nullptr);
    EXPECT_TRUE(heap_->holds(data));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % (bytes >= 2 << 20 ? 2 << 20 : 4096), 0u);
    for (const auto& [other, size] : parts)
      EXPECT_TRUE(data + bytes <= other || other + size <= data);
    parts.emplace_back(data, bytes);
  }
  for (const auto& [data, bytes] : parts) heap_->free(data, bytes);
}

TEST_F(SharedHeapTest, WhatIsFreedIsGivenBackAndHandedOutAgain) {
  constexpr std::int64_t kBytes = 8 << 20;
  void* first = heap_->allocate(kBytes);
  void* second = heap_->allocate(kBytes);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  std::memset(first, 1, kBytes);
  std::memset(second, 2, kBytes);
  EXPECT_GE(held(), 2 * kBytes);
  heap_->free(first, kBytes);
  heap_->free(second, kBytes);
  EXPECT_LT(held(), kBytes);
  // The two blocks are one free range again.
  void* both = heap_->allocate(2 * kBytes);
  EXPECT_EQ(both, first);
  EXPECT_EQ(*static_cast<char*>(both), 0);
  heap_->free(both, 2 * kBytes);
}

TEST_F(SharedHeapTest, OthersReadItThroughItsFile) {
  auto* data = static_cast<char*>(heap_->allocate(10'000));
  ASSERT_NE(data, nullptr);
  std::strcpy(data, "here");
  void* seen = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, heap_->file(), heap_->offset_of(data));
  ASSERT_NE(seen, MAP_FAILED);
  EXPECT_STREQ(static_cast<char*>(seen), "here");
  munmap(seen, 4096);
  heap_->free(data, 10'000);
}

TEST_F(SharedHeapTest, MoreThanThereIsIsNull) {
  EXPECT_EQ(heap_->allocate(heap_->size() + 1), nullptr);
  int other = 0;
  EXPECT_FALSE(heap_->holds(&other));
}

// Must be the last test: this process has another heap after it.
TEST_F(SharedHeapTest, BlocksThatAreTooLargeForItLieElsewhere) {
  SharedHeap* const small = SharedHeap::make(2 << 20, 64);
  ASSERT_NE(small, nullptr);
  EXPECT_LE(small->size(), (std::int64_t{16} << 40) / 64);
  EXPECT_EQ(small->allocate(2 << 20), nullptr);
  void* const block = small->allocate((2 << 20) - 1);
  EXPECT_NE(block, nullptr);
  small->free(block, (2 << 20) - 1);
  EXPECT_EQ(SharedHeap::of_process(), small);
}

}  // namespace
}  // namespace shmap
