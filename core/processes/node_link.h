// NodeLink: shared memory through which the processes of one node exchange messages without MPI.
//
// Each process has a box into which each of the others writes messages, and lets the others read
// its shared heap. Both are unnamed files, so that nothing of them remains when the processes have
// ended, however they end.
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
  static constexpr std::size_t kMostBytes = 16 << 10;  // of one message

  // What goes through the link. messages: only messages; blocks: also the contents of the
  // processes' heaps, which hold blocks of less than 2 MiB, and of memory that the kernel lets one
  // process read in another (process_vm_readv); all: the same, with all blocks in the heaps.
  enum class Carries : std::uint8_t { nothing, messages, blocks, all };
  // A collective of all processes, at start. Null where this process can reach no other process
  // through a link. Pairs that cannot reach each other (one of them asks for nothing, or the kernel
  // refuses) use MPI.
  static std::unique_ptr<NodeLink> make(MessagePassing& messages, const Peers& peers,
                                        Carries carries);
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  bool reaches(int process) const noexcept {
    return partners_[static_cast<std::size_t>(process)].box != nullptr;
  }
  bool reaches_all() const noexcept { return reaches_all_; }

  // Writes a message of two parts into the box of process `to`, and wakes that process if it
  // sleeps; false if there is no room now. One thread at a time.
  bool send(int to, std::span<const std::byte> head, std::span<const std::byte> body) noexcept;
  // Whether a message of that many bytes would fit now. One thread at a time.
  bool has_room(int to, std::size_t bytes) noexcept {
    return has_room(partners_[static_cast<std::size_t>(to)], room_of(bytes));
  }
  // The board has kBoardPlaces entries of up to kBoardBytes, in which contents for several
  // processes are written once, and all of them read. An entry is free again when its readers have
  // dropped the messages that name it. One thread at a time.
  static constexpr std::size_t kBoardBytes = 8 << 10;
  static constexpr std::uint32_t kBoardPlaces = 8;
  bool board_has_room() noexcept;
  // The next entry, which board_has_room() has found free. told_of_board() must follow for each
  // reader, after the message that names the entry was sent to that reader.
  std::uint32_t next_on_board() noexcept;
  void told_of_board(std::uint32_t place, int to) noexcept;
  std::byte* board(std::uint32_t place) noexcept { return own_->board[place % kBoardPlaces]; }
  const std::byte* board_of(int process, std::uint32_t place) const noexcept {
    return partners_[static_cast<std::size_t>(process)].box->board[place % kBoardPlaces];
  }

  // The oldest message of any process; valid until drop_first(); empty where there is none. One
  // thread at a time.
  std::span<const std::byte> first(int& from) noexcept;
  // The oldest message of process `from`; otherwise the same as first().
  std::span<const std::byte> first_of(int from) noexcept;
  void drop_first() noexcept;
  // The same as drop_first(), but the message stays valid until give_room() for the same process.
  // One message of a process at a time, and only after first_of(); later messages can be taken
  // meanwhile.
  void keep_first() noexcept;
  void give_room(int from) noexcept {
    Partner& partner = partners_[static_cast<std::size_t>(from)];
    partner.keeps = false;
    partner.from->read.store(partner.read.load(std::memory_order_relaxed),
                             std::memory_order_release);
  }
  // Whether a message has come. Any thread.
  bool any() const noexcept;

  // True if that process reads this process's heap.
  bool lends_to(int process) const noexcept {
    return partners_[static_cast<std::size_t>(process)].reads_own_heap;
  }
  // True if each process of this node has mapped the heaps of all others; the same in all of
  // them.
  bool all_read_heaps() const noexcept { return all_read_heaps_; }
  // True if that process may read all of this process's memory.
  bool shows_to(int process) const noexcept {
    return partners_[static_cast<std::size_t>(process)].reads_memory;
  }
  // Copies from an address of a process that lets others read its memory. Returns an error of errno
  // (ESRCH where that process is gone) or 0. Any thread.
  int read_memory(int process, std::byte* to, const std::byte* from,
                  std::int64_t bytes) const noexcept;
  // The address here of memory in that process's heap; null where it does not lie there.
  const std::byte* memory_of(int process, std::int64_t offset, std::int64_t bytes) const noexcept;

  // For processes that share cores: tells the others that this process is running on `core`, or
  // (kAway) has offered its core to others. A process waits actively for this one's message only
  // while this one runs on another core.
  static constexpr int kAway = -1;
  void set_core(int core) noexcept;
  // True if that process is running, as far as is known, on another core than this process.
  bool runs_elsewhere(int process) const noexcept;

  // Tells all other processes that the memory which they read here may change from now on, after a
  // failure.
  void mark_failed() noexcept { own_->failed.store(1, std::memory_order_seq_cst); }
  bool has_failed(int process) const noexcept;

  // While the bell is wanted, the next message makes this descriptor readable, until
  // silence_bell(). After want_bell(true) the caller must look once more whether a message has come
  // (any()). want_bell(true) may take some microseconds: the thread that is about to sleep makes
  // the memory fence, so that no sender has to.
  int bell() const noexcept { return bell_; }
  void want_bell(bool wanted) noexcept;
  void silence_bell() noexcept;

 private:
  static constexpr std::uint32_t kRing = 64 << 10;
  static constexpr std::uint32_t kWrap = 0xffffffff;  // in place of a message's size: continue at
                                                      // the beginning
  static constexpr std::uint32_t kLine = 64;

  // A message starts at a cache line with its size, and the size is written last, so that a small
  // message is one cache line that moves between cores. After a message the size of the next one is
  // 0.
  struct Ring {
    alignas(kLine) std::atomic<std::uint64_t> read{0};  // position of the receiver
    alignas(kLine) std::byte data[kRing];
    std::atomic_ref<std::uint32_t> size_at(std::uint64_t position) noexcept {
      return std::atomic_ref<std::uint32_t>(
          *reinterpret_cast<std::uint32_t*>(data + position % kRing));
    }
  };
  struct Box {
    alignas(64) std::atomic<std::uint32_t> bell_wanted{0};  // the process sleeps until the bell
                                                            // rings
    alignas(64) std::atomic<std::uint32_t> failed{0};
    alignas(64) std::atomic<int> core{0};  // kAway: the process has offered its core
    alignas(64) std::byte board[kBoardPlaces][kBoardBytes];
    Ring* rings() noexcept { return reinterpret_cast<Ring*>(this + 1); }
  };
  struct Partner {
    Box* box = nullptr;                  // the other process's box
    int bell = -1;                       // the write end of its pipe
    Ring* to = nullptr;                  // ring in that box: messages from this process
    std::uint64_t written = 0;           // position up to which this process has written
    std::uint64_t read_there = 0;        // the receiver's position there, when last read
    Ring* from = nullptr;                // ring in this process's box
    std::atomic<std::uint64_t> read{0};  // position up to which this process has read `from`
    bool keeps = false;                  // the room of a message that was read is still in use
    const std::byte* heap = nullptr;     // the other process's heap
    bool reads_own_heap = false;         // the other process has mapped this process's heap
    bool reads_memory = false;           // the other process may read this process's memory
    int pid = 0;
    bool needs_fence = true;  // with each message, since the other process's want_bell() makes none
    std::int64_t heap_bytes = 0;
  };

  explicit NodeLink(int processes) : partners_(static_cast<std::size_t>(processes)) {}
  static std::uint32_t room_of(std::size_t bytes) noexcept {
    return (static_cast<std::uint32_t>(bytes) + 8 + kLine - 1) / kLine * kLine;
  }
  // The bytes to skip so that a message of size `room` is contiguous in the ring.
  static std::uint32_t skipped_before(std::uint64_t written, std::uint32_t room) noexcept {
    const std::uint32_t left = kRing - static_cast<std::uint32_t>(written % kRing);
    return left < room ? left : 0;
  }
  // Includes the line behind the message, whose size 0 marks the end.
  static bool has_room(Partner& partner, std::uint32_t room) noexcept {
    const std::uint64_t end =
        partner.written + skipped_before(partner.written, room) + room + kLine;
    if (end - partner.read_there <= kRing) return true;
    partner.read_there = partner.to->read.load(std::memory_order_acquire);
    return end - partner.read_there <= kRing;
  }
  static bool has_read(Partner& partner, std::uint64_t position) noexcept;
  std::span<const std::byte> first_of(Partner& partner) noexcept;
  static std::size_t box_bytes(int node_size) noexcept {
    return sizeof(Box) + sizeof(Ring) * static_cast<std::size_t>(node_size);
  }

  std::vector<Partner> partners_;  // by process
  std::vector<int> reached_;
  bool reaches_all_ = false;
  bool all_read_heaps_ = false;
  bool fences_others_ = false;  // want_bell() makes fences in other processes
  struct Reader {
    int process;
    std::uint64_t until;  // the position in its ring behind the message
  };
  std::vector<Reader> readers_[kBoardPlaces];
  std::uint32_t next_place_ = 0;
  Box* own_ = nullptr;
  std::size_t box_bytes_ = 0;
  std::size_t next_ = 0;  // index in reached_: the ring that is looked at first
  Partner* first_from_ = nullptr;
  std::uint64_t after_first_ = 0;
  int bell_ = -1, bell_inlet_ = -1;  // this process's pipe
};

}  // namespace shmap
