// Memory is aligned, bounded, and reused only after its last use.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "shmap/counters.h"
#include "tests/device/conformance/fixture.h"

namespace shmap::testing {

template <class Traits>
class MemoryConformance : public DeviceFixture<Traits> {};
TYPED_TEST_SUITE_P(MemoryConformance);

TYPED_TEST_P(MemoryConformance, MemoryIsAlignedAndReused) {
  this->open("1");
  MemorySpace& space = *this->device().space;
  for (std::int64_t bytes : {0, 1, 63, 64, 65, 512, 513, 4096, 100'000, 3 << 20}) {
    void* first = nullptr;
    {
      const BufferRef b = space.allocate(bytes);
      first = b->data();
      ASSERT_NE(first, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
      EXPECT_EQ(b->bytes(), bytes);
      EXPECT_GE(b->capacity(), std::max<std::int64_t>(bytes, 1));
      EXPECT_LE(b->capacity(), std::max<std::int64_t>(64, bytes + bytes / 8 + 63));
      EXPECT_EQ(b.use_count(), 1);
      EXPECT_TRUE(b->quiet());
      EXPECT_EQ(space.bytes_in_use(), b->capacity());
    }
    EXPECT_EQ(space.bytes_in_use(), 0);
    EXPECT_EQ(space.allocate(bytes)->data(), first);
  }
  EXPECT_THROW(space.allocate(-1), ValueError);
  space.trim();
  EXPECT_EQ(space.cached_bytes(), 0);
}

TYPED_TEST_P(MemoryConformance, MemoryIsReusedOnlyAfterItsLastUse) {
  this->open("2");
  MemorySpace& space = *this->device().space;
  for (int round = 0; round < 200; ++round) {
    const BufferRef out = this->number(0);
    {
      const BufferRef old = space.allocate(256);  // written by one stream, read by another
      old->def() = this->mix(this->device(0).compute, this->at(old), 1);
      Event e;
      for (int k = 0; k < 3; ++k) {
        e = this->run(this->device(1).comm,
                      [to = this->at(out), from = this->at(old)](const TaskContext& c) {
                        TypeParam::add(c.native, to, from);
                      },
                      {old->def()});
        old->add_use(e);
      }
      out->def() = e;
      EXPECT_EQ(old.use_count(), 1);  // the pending tasks are no owners
    }
    const BufferRef fresh = space.allocate(256);
    TypeParam::upload(this->at(fresh), 1234);  // a host write: nothing pending may touch it
    this->backend->synchronize();
    ASSERT_EQ(this->value(fresh), 1234) << this->backend->repro();
  }
  space.reclaim();
  EXPECT_EQ(space.pending_bytes(), 0);
}

TYPED_TEST_P(MemoryConformance, ForeignMemoryIsReleasedAfterItsLastUse) {
  this->open("1", 1 << 20);
  static std::atomic<int> released;
  released = 0;
  struct Foreign {
    BufferRef memory;  // let go from inside the deleter, of the same space
  };
  MemorySpace& space = *this->device().space;
  auto* foreign = new Foreign{space.allocate(64)};
  TypeParam::upload(this->at(foreign->memory), 0);
  BufferRef b = space.wrap(
      foreign->memory->data(), 64,
      [](void* p) noexcept {
        delete static_cast<Foreign*>(p);
        released.fetch_add(1);
      },
      foreign);
  Event e;
  for (int i = 0; i < 20; ++i) e = this->mix(this->device().compute, this->at(b), i);
  b->def() = e;
  b.reset();
  EXPECT_TRUE(released.load() == 0 || e.done());
  this->backend->synchronize();
  EXPECT_THROW(space.allocate(2 << 20), OutOfMemory);  // takes back first what is done
  EXPECT_EQ(released.load(), 1);
}

TYPED_TEST_P(MemoryConformance, OutOfMemoryNamesWhatMatters) {
  constexpr std::int64_t kMiB = 1 << 20;
  this->open("8", 8 * kMiB);
  MemorySpace& space = *this->device().space;
  const BufferRef a = space.allocate(4 * kMiB);
  BufferRef b = space.allocate(2 * kMiB);
  std::string text;
  try {
    space.allocate(3 * kMiB);
  } catch (const OutOfMemory& e) {
    text = e.what();
  }
  EXPECT_THAT(text, ::testing::HasSubstr("(id=0..7)"));
  EXPECT_THAT(text, ::testing::HasSubstr("3.0 MiB (3145728 bytes) asked for"));
  EXPECT_THAT(text, ::testing::HasSubstr("6.0 MiB (6291456 bytes) in use by 2 arrays"));
  EXPECT_THAT(text, ::testing::HasSubstr("limit 8.0 MiB"));
  EXPECT_THAT(text, ::testing::HasSubstr("largest free block 0 bytes"));
  EXPECT_THAT(text, ::testing::HasSubstr("largest live arrays: 4.0 MiB (4194304 bytes), 2.0 MiB"));
  EXPECT_THAT(text, ::testing::HasSubstr("SHMAP_MEMORY_LIMIT"));
  EXPECT_THROW(space.allocate(INT64_MAX), OutOfMemory);
  // Afterwards it goes on; what is cached makes room for other sizes.
  b.reset();
  EXPECT_EQ(space.allocate(4 * kMiB)->capacity(), 4 * kMiB);
  EXPECT_LE(space.peak_bytes(), 8 * kMiB);
}

TYPED_TEST_P(MemoryConformance, AllocationWaitsForPendingMemoryBeforeItFails) {
  constexpr std::int64_t kMiB = 1 << 20;
  this->open("2", 4 * kMiB);
  MemorySpace& space = *this->device().space;
  for (int i = 0; i < 100; ++i) {  // 300 MiB through 4
    const BufferRef b = space.allocate(3 * kMiB);
    b->def() = this->mix(this->device().compute, this->at(b), i);
  }
  EXPECT_LE(space.peak_bytes(), 4 * kMiB);
}

TYPED_TEST_P(MemoryConformance, CachedMemoryIsTakenAndGivenBackTogether) {
  this->open("1");
  MemorySpace& space = *this->device().space;
  std::vector<BufferRef> owned;
  std::vector<void*> addresses;
  for (int k = 0; k < 4; ++k) {
    owned.push_back(space.allocate(1000));
    addresses.push_back(owned.back()->data());
  }
  const BufferRef shared = owned[2];
  const std::int64_t one = shared->capacity();
  {
    BufferChain chain;
    for (BufferRef& b : owned) chain.give_up(b.detach(), 1);
    EXPECT_EQ(space.bytes_in_use(), 4 * one);  // given back when the chain ends
  }
  EXPECT_EQ(space.bytes_in_use(), one);  // of the buffer with another owner
  EXPECT_EQ(space.cached_bytes(), 3 * one);

  const std::int64_t allocations = counters().allocations;
  {
    BufferChain chain;
    space.take_cached(990, 2, chain);
    EXPECT_EQ(space.bytes_in_use(), 3 * one);
    const BufferRef first = chain.next(), second = chain.next();
    ASSERT_TRUE(first && second);
    EXPECT_FALSE(chain.next());
    EXPECT_EQ(first->data(), addresses[0]);  // in the order in which they were given up
    EXPECT_EQ(second->data(), addresses[1]);
    EXPECT_EQ(first->bytes(), 990);
    EXPECT_EQ(first.use_count(), 1);
    EXPECT_EQ(counters().allocations - allocations, 2);
  }
  {
    BufferChain all;
    space.take_cached(1000, 100, all);  // those that there are
    for (int k = 0; k < 3; ++k) EXPECT_TRUE(all.next());
    EXPECT_FALSE(all.next());
    BufferChain none;
    space.take_cached(100'000, 1, none);
    EXPECT_FALSE(none.next());
  }
  {
    BufferChain rest;  // what is left in a chain returns to the space
    space.take_cached(1000, 3, rest);
    EXPECT_EQ(space.cached_bytes(), 0);
    EXPECT_TRUE(rest.next());
  }
  EXPECT_EQ(space.bytes_in_use(), one);
  EXPECT_EQ(space.cached_bytes(), 3 * one);
}

TYPED_TEST_P(MemoryConformance, ChainsLeavePendingAndOtherBuffersOut) {
  this->open("2");
  MemorySpace& space = *this->device().space;
  const BufferRef out = this->number(0);
  BufferRef pending = this->number(5), large = space.allocate(4096), small = this->number(7);
  pending->def() = this->mix(this->device().compute, this->at(pending), 1);
  out->def() = this->run(this->device(1).comm,
                         [to = this->at(out), from = this->at(pending)](const TaskContext& c) {
                           TypeParam::add(c.native, to, from);
                         },
                         {pending->def()});
  pending->add_use(out->def());
  {
    BufferChain chain;
    chain.give_up(small.detach(), 1);
    chain.give_up(pending.detach(), 1);
    chain.give_up(large.detach(), 1);
  }
  for (int k = 0; k < 3; ++k) {  // a host write: no pending task may touch it
    const BufferRef fresh = space.allocate(4);
    TypeParam::upload(this->at(fresh), 1234);
  }
  this->backend->synchronize();
  EXPECT_EQ(this->value(out), 5 * 31 + 1);
  space.reclaim();
  EXPECT_EQ(space.bytes_in_use(), out->capacity());
}

REGISTER_TYPED_TEST_SUITE_P(MemoryConformance, MemoryIsAlignedAndReused,
                            CachedMemoryIsTakenAndGivenBackTogether,
                            ChainsLeavePendingAndOtherBuffersOut, MemoryIsReusedOnlyAfterItsLastUse,
                            ForeignMemoryIsReleasedAfterItsLastUse, OutOfMemoryNamesWhatMatters,
                            AllocationWaitsForPendingMemoryBeforeItFails);

}  // namespace shmap::testing
