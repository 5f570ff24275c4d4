// Messages that wait for room in the rings of other processes, which are threads here.
#include "core/processes/letter_queue.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "core/processes/node_link.h"
#include "core/processes/peers.h"
#include "tests/processes/thread_messages.h"

namespace shmap {
namespace {

using Bytes = std::vector<std::byte>;

struct Rank {
  std::unique_ptr<ThreadMessages> messages;
  std::unique_ptr<Peers> peers;
  std::unique_ptr<NodeLink> link;
};

// The first byte of the next message from a rank, which is dropped; -1 where there is none.
int next_from(NodeLink& link, int rank) {
  const std::span<const std::byte> message = link.first_of(rank);
  if (message.empty()) return -1;
  const int value = std::to_integer<int>(message[0]);
  link.drop_first();
  return value;
}

TEST(LetterQueue, AFullRingHoldsBackNoMessageForOthers) {
  constexpr int kRanks = 3;
  static auto& mail = *new ThreadMail(kRanks);
  const std::vector<PeerCard> cards(kRanks, PeerCard::of_this_process());
  std::vector<Rank> ranks(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Rank& rank = ranks[static_cast<std::size_t>(r)];
      rank.messages = std::make_unique<ThreadMessages>(mail, r);
      rank.peers = std::make_unique<Peers>(r, cards);
      rank.link = NodeLink::make(*rank.messages, *rank.peers, NodeLink::Carries::messages);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (ranks[0].link == nullptr) GTEST_SKIP() << "no memory is shared here";

  NodeLink& link = *ranks[0].link;
  const auto message = [](int first) { return Bytes(1000, std::byte(first)); };
  int written = 0;
  while (link.send(1, message(written), {})) ++written;
  ASSERT_GT(written, 3);

  LetterQueue queue;
  queue.push(1, message(201), {});
  queue.push(2, message(202), {});
  queue.push(1, message(203), {});
  queue.push(2, message(204), {});
  EXPECT_TRUE(queue.send(&link));
  EXPECT_EQ(next_from(*ranks[2].link, 0), 202);
  EXPECT_EQ(next_from(*ranks[2].link, 0), 204);
  EXPECT_FALSE(queue.has_for(2));
  EXPECT_TRUE(queue.has_for(1));
  EXPECT_FALSE(queue.send(&link));  // still no room

  for (int i = 0; i < written; ++i) EXPECT_EQ(next_from(*ranks[1].link, 0), i);
  EXPECT_TRUE(queue.send(&link));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(next_from(*ranks[1].link, 0), 201);
  EXPECT_EQ(next_from(*ranks[1].link, 0), 203);
  EXPECT_EQ(next_from(*ranks[1].link, 0), -1);
}

}  // namespace
}  // namespace shmap
