// NodeLink: memory by which the processes of one node talk, without the library that joined them.
//
// Each process has a box, into which each of the others writes messages, and lets the others read
// its shared heap. Both are files without names: nothing of them stays when the processes are gone,
// however they end.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/processes/message_passing.h"
#include "core/processes/peers.h"
#include "core/processes/shared_heap.h"

namespace shmap {

class NodeLink {
 public:
  static constexpr std::size_t kMostBytes = 16 << 10;  // of a message

  // What goes through it: nothing; messages alone; also what lies in the processes' heaps, which
  // hold blocks of less than 2 MiB, and what the kernel lets a process read in another's memory
  // (process_vm_readv); or the same with all blocks in the heaps.
  enum class Carries : std::uint8_t { nothing, messages, blocks, all };
  // A collective of all processes, at start. Null where this process has nobody whom it could reach
  // so; pairs that cannot reach each other (one of them wants nothing, the kernel refuses) go on
  // without.
  static std::unique_ptr<NodeLink> make(MessagePassing& messages, const Peers& peers,
                                        Carries carries);
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  bool reaches(int process) const noexcept {
    return partners_[static_cast<std::size_t>(process)].box != nullptr;
  }
  bool reaches_all() const noexcept { return reaches_all_; }

  // Puts a message of two parts into that process's box, and wakes it where it sleeps; false where
  // there is no room now. One thread at a time.
  bool send(int to, std::span<const std::byte> head, std::span<const std::byte> body) noexcept;
  // Whether a message of so many bytes would find room there now. As send().
  bool has_room(int to, std::size_t bytes) noexcept;
  // The oldest message of any of them, until drop_first(); empty where there is none. One thread at
  // a time.
  std::span<const std::byte> first(int& from) noexcept;
  // The oldest message of that process, as above.
  std::span<const std::byte> first_of(int from) noexcept;
  void drop_first() noexcept;
  // Whether one has come; any thread.
  bool any() const noexcept;

  // Whether that process reads this one's heap.
  bool lends_to(int process) const noexcept {
    return partners_[static_cast<std::size_t>(process)].reads_own_heap;
  }
  // Whether that process may read all of this one's memory.
  bool shows_to(int process) const noexcept {
    return partners_[static_cast<std::size_t>(process)].reads_memory;
  }
  // Copies from an address of that process, which shows its memory. An error of errno, ESRCH where
  // that process is gone; 0: none. Any thread.
  int read_memory(int process, std::byte* to, const std::byte* from,
                  std::int64_t bytes) const noexcept;
  // Memory of that process's heap; null where it does not lie there.
  const std::byte* memory_of(int process, std::int64_t offset, std::int64_t bytes) const noexcept;

  // Told to all: after a failure what others read of this process's memory is no longer sure.
  void mark_failed() noexcept { own_->failed.store(1, std::memory_order_seq_cst); }
  bool has_failed(int process) const noexcept;

  // Where the bell is wanted, the next message makes this descriptor readable, until
  // silence_bell(). Who wants it looks after that whether a message has come before (any()). To
  // want it may take some microseconds: whoever is about to sleep pays for the order between the
  // two, so that no sender does.
  int bell() const noexcept { return bell_; }
  void want_bell(bool wanted) noexcept;
  bool bell_is_wanted() const noexcept {
    return own_->bell_wanted.load(std::memory_order_relaxed) != 0;
  }
  void silence_bell() noexcept;

 private:
  static constexpr std::uint32_t kRing = 64 << 10;
  static constexpr std::uint32_t kWrap = 0xffffffff;  // as a message's size: go on at the beginning
  static constexpr std::uint32_t kLine = 64;

  // A message begins a cache line with its size, and the size is written last: a small message is
  // one line that goes from core to core. Behind a message the size of the next one is 0.
  struct Ring {
    alignas(kLine) std::atomic<std::uint64_t> read{0};  // how far the receiver is
    alignas(kLine) std::byte data[kRing];
    std::atomic_ref<std::uint32_t> size_at(std::uint64_t position) noexcept {
      return std::atomic_ref<std::uint32_t>(
          *reinterpret_cast<std::uint32_t*>(data + position % kRing));
    }
  };
  struct Box {
    alignas(64) std::atomic<std::uint32_t> bell_wanted{0};  // its process sleeps until it rings
    alignas(64) std::atomic<std::uint32_t> failed{0};
    Ring* rings() noexcept { return reinterpret_cast<Ring*>(this + 1); }
  };
  struct Partner {
    Box* box = nullptr;                  // theirs
    int bell = -1;                       // a pipe, into which to write
    Ring* to = nullptr;                  // in their box, what this process sends
    std::uint64_t written = 0;           // how far into it
    std::uint64_t read_there = 0;        // how far they had read it when this was last looked up
    Ring* from = nullptr;                // in the own box
    std::atomic<std::uint64_t> read{0};  // how far this process has read that
    const std::byte* heap = nullptr;     // theirs
    bool reads_own_heap = false;         // they see this process's
    bool reads_memory = false;           // they may read this process's
    int pid = 0;
    bool needs_fence = true;  // with each message, since their want_bell() makes none
    std::int64_t heap_bytes = 0;
  };

  explicit NodeLink(int processes) : partners_(static_cast<std::size_t>(processes)) {}
  static std::uint32_t room_of(std::size_t bytes) noexcept {
    return (static_cast<std::uint32_t>(bytes) + 8 + kLine - 1) / kLine * kLine;
  }
  // The bytes that are skipped, so that a message which takes so much room lies in one piece.
  static std::uint32_t skipped_before(std::uint64_t written, std::uint32_t room) noexcept {
    const std::uint32_t left = kRing - static_cast<std::uint32_t>(written % kRing);
    return left < room ? left : 0;
  }
  static bool has_room(Partner& partner, std::uint32_t room) noexcept;
  std::span<const std::byte> first_of(Partner& partner) noexcept;
  static std::size_t box_bytes(int node_size) noexcept {
    return sizeof(Box) + sizeof(Ring) * static_cast<std::size_t>(node_size);
  }

  std::vector<Partner> partners_;  // by process
  std::vector<int> reached_;
  bool reaches_all_ = false;
  bool fences_others_ = false;  // want_bell() does
  Box* own_ = nullptr;
  std::size_t box_bytes_ = 0;
  std::size_t next_ = 0;  // in reached_: whose ring is looked at first
  Partner* first_from_ = nullptr;
  std::uint64_t after_first_ = 0;
  int bell_ = -1, bell_inlet_ = -1;  // the own pipe
};

}  // namespace shmap
