#include "core/processes/node_link.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "core/base/hash_text.h"

namespace shmap {
namespace {

// A file that a process has open, by its descriptor there (-1: none), device and inode. Processes
// of one node may be in separate process number spaces (containers); the pid may then be that of an
// unrelated process, whose file has another device or inode.
struct OpenFile {
  std::int32_t number = -1;
  std::uint64_t device = 0, inode = 0;
};
// The card of a process: how the others find its memory.
struct LinkCard {
  std::int32_t pid = 0;
  OpenFile box, bell, heap;
  std::int64_t heap_bytes = 0;
  bool fences = false;  // the process can make fences in others, and they in it
  // A number and the number's address, if the process lets others read its memory.
  std::uint64_t probe_at = 0, probe = 0;
};

// The files and the memory of another process that a process has opened, as bits.
enum Opened : char { kBox = 1, kHeap = 2, kMemory = 4 };

// Returns an error of errno, or 0.
int read_process(int pid, std::byte* to, std::uint64_t from, std::int64_t bytes) noexcept {
  while (bytes > 0) {
    const iovec here{to, static_cast<std::size_t>(bytes)};
    const iovec there{reinterpret_cast<void*>(from), static_cast<std::size_t>(bytes)};
    const ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EFAULT;
    to += n;
    from += static_cast<std::uint64_t>(n);
    bytes -= n;
  }
  return 0;
}

// Makes a memory fence in every running thread of the registered processes, including this one
// (membarrier).
bool fence_all() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}
bool register_for_fences() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
         fence_all();
}

OpenFile describe(int file) {
  struct stat status;
  if (fstat(file, &status) != 0) return {};
  return {file, status.st_dev, status.st_ino};
}

void* map_file(int file, std::size_t bytes, int protection) {
  void* p = mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
  return p == MAP_FAILED ? nullptr : p;
}

// Opens a file that another process of this node has open; -1 if it cannot be reached. The file is
// compared before it is opened, because opening an unrelated pipe or device could block, or have
// effects.
int open_of(int pid, const OpenFile& file, int flags) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file.number);
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || status.st_dev != file.device ||
      status.st_ino != file.inode)
    return -1;
  return open(path.c_str(), flags | O_CLOEXEC);
}

}  // namespace

std::unique_ptr<NodeLink> NodeLink::make(MessagePassing& messages, const Peers& peers,
                                         Carries carries) {
  const int n = peers.size(), self = peers.self();
  std::unique_ptr<NodeLink> link(new NodeLink(n));
  link->box_bytes_ = box_bytes(peers.node_size());
  for (auto& readers : link->readers_) readers.reserve(static_cast<std::size_t>(peers.node_size()));
  LinkCard card;
  card.pid = getpid();
  // Differs between processes, so that a read tells whether the memory belongs to the intended
  // process.
  const std::uint64_t probe = HashText()
                                  .add(reinterpret_cast<std::uint64_t>(link.get()))
                                  .add(static_cast<std::uint64_t>(self))
                                  .add(static_cast<std::uint64_t>(card.pid))
                                  .value();
  int box = -1;
  if (carries != Carries::nothing && peers.node_size() > 1) {
    box = memfd_create("shmap", MFD_CLOEXEC);
    void* own = nullptr;
    int pipe[2] = {-1, -1};
    const bool rings = pipe2(pipe, O_CLOEXEC | O_NONBLOCK) == 0;
    link->bell_ = pipe[0];
    link->bell_inlet_ = pipe[1];
    if (box >= 0 && rings && ftruncate(box, static_cast<off_t>(link->box_bytes_)) == 0)
      own = map_file(box, link->box_bytes_, PROT_READ | PROT_WRITE);
    if (own != nullptr) {
      // New pages are zero-filled, which is the initial state of the atomics.
      link->own_ = static_cast<Box*>(own);
      card.box = describe(box);
      card.bell = describe(link->bell_inlet_);
      card.fences = link->fences_others_ = register_for_fences();
      const SharedHeap* heap = nullptr;
      if (carries == Carries::blocks || carries == Carries::all) {
        // Larger blocks have huge pages where they do not lie in a file.
        heap = SharedHeap::make(carries == Carries::all ? std::numeric_limits<std::int64_t>::max()
                                                        : SharedHeap::kHugePage,
                                peers.node_size());
        card.probe_at = reinterpret_cast<std::uint64_t>(&probe);
        card.probe = probe;
      }
      if (heap != nullptr) {
        card.heap = describe(heap->file());
        card.heap_bytes = heap->size();
      }
    }
  }
  std::vector<LinkCard> cards(static_cast<std::size_t>(n));
  messages.all_gather(&card, sizeof card, cards.data());

  // By process: its position among the processes of this node.
  std::vector<int> node_rank(static_cast<std::size_t>(n), -1);
  int next = 0;
  for (int p = 0; p < n; ++p)
    if (peers.on_this_node(p)) node_rank[static_cast<std::size_t>(p)] = next++;
  std::vector<char> opened(static_cast<std::size_t>(n), 0);
  for (int p = 0; p < n && card.box.number >= 0; ++p) {
    const LinkCard& theirs = cards[static_cast<std::size_t>(p)];
    if (p == self || !peers.on_this_node(p) || theirs.box.number < 0) continue;
    Partner& partner = link->partners_[static_cast<std::size_t>(p)];
    const int file = open_of(theirs.pid, theirs.box, O_RDWR);
    if (file < 0) continue;
    partner.box = static_cast<Box*>(map_file(file, link->box_bytes_, PROT_READ | PROT_WRITE));
    close(file);
    // Opened for reading too, so that writing to it never fails with SIGPIPE.
    partner.bell = open_of(theirs.pid, theirs.bell, O_RDWR | O_NONBLOCK);
    if (partner.box == nullptr || partner.bell < 0) continue;
    char& has = opened[static_cast<std::size_t>(p)];
    has = kBox;
    partner.pid = theirs.pid;
    std::uint64_t seen_probe = 0;
    if (card.probe_at != 0 && theirs.probe_at != 0 &&
        read_process(theirs.pid, reinterpret_cast<std::byte*>(&seen_probe), theirs.probe_at,
                     sizeof seen_probe) == 0 &&
        seen_probe == theirs.probe)
      has = static_cast<char>(has | kMemory);
    if (theirs.heap.number < 0) continue;
    const int heap = open_of(theirs.pid, theirs.heap, O_RDONLY);
    if (heap < 0) continue;
    if (void* seen = SharedHeap::map(heap, theirs.heap_bytes, PROT_READ)) {
      partner.heap = static_cast<const std::byte*>(seen);
      partner.heap_bytes = theirs.heap_bytes;
      has = static_cast<char>(has | kHeap);
    }
    close(heap);
  }
  std::vector<char> all(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
  messages.all_gather(opened.data(), opened.size(), all.data());
  if (box >= 0) close(box);

  link->all_read_heaps_ = true;
  for (int p = 0; p < n; ++p) {
    for (int q = 0; q < n; ++q) {
      if (p == q || !peers.on_this_node(p) || !peers.on_this_node(q)) continue;
      const char has = all[static_cast<std::size_t>(p) * static_cast<std::size_t>(n) +
                           static_cast<std::size_t>(q)];
      link->all_read_heaps_ = link->all_read_heaps_ && (has & kHeap) != 0;
    }
  }
  link->reaches_all_ = true;
  bool heap_is_read = false;
  for (int p = 0; p < n; ++p) {
    if (p == self) continue;
    Partner& partner = link->partners_[static_cast<std::size_t>(p)];
    const char back = all[static_cast<std::size_t>(p) * static_cast<std::size_t>(n) +
                          static_cast<std::size_t>(self)];
    if (partner.box != nullptr && (back == 0 || opened[static_cast<std::size_t>(p)] == 0)) {
      munmap(partner.box, link->box_bytes_);
      partner.box = nullptr;
    }
    if (partner.box == nullptr) {
      link->reaches_all_ = false;
      continue;
    }
    partner.to = partner.box->rings() + node_rank[static_cast<std::size_t>(self)];
    partner.from = link->own_->rings() + node_rank[static_cast<std::size_t>(p)];
    partner.reads_own_heap = (back & kHeap) != 0;
    partner.reads_memory = (back & kMemory) != 0;
    partner.needs_fence = !card.fences || !cards[static_cast<std::size_t>(p)].fences;
    heap_is_read = heap_is_read || partner.reads_own_heap;
    link->reached_.push_back(p);
  }
  if (!heap_is_read) SharedHeap::disuse();
  if (link->reached_.empty()) return nullptr;
  return link;
}

NodeLink::~NodeLink() {
  for (Partner& partner : partners_) {
    if (partner.box != nullptr) munmap(partner.box, box_bytes_);
    if (partner.bell >= 0) close(partner.bell);
    if (partner.heap != nullptr)
      munmap(const_cast<std::byte*>(partner.heap), static_cast<std::size_t>(partner.heap_bytes));
  }
  if (own_ != nullptr) munmap(own_, box_bytes_);
  if (bell_ >= 0) close(bell_);
  if (bell_inlet_ >= 0) close(bell_inlet_);
}

bool NodeLink::has_read(Partner& partner, std::uint64_t position) noexcept {
  if (partner.read_there >= position) return true;
  partner.read_there = partner.to->read.load(std::memory_order_acquire);
  return partner.read_there >= position;
}

bool NodeLink::board_has_room() noexcept {
  return std::ranges::all_of(readers_[next_place_], [&](const Reader& reader) {
    return has_read(partners_[static_cast<std::size_t>(reader.process)], reader.until);
  });
}

std::uint32_t NodeLink::next_on_board() noexcept {
  const std::uint32_t place = next_place_;
  next_place_ = (place + 1) % kBoardPlaces;
  readers_[place].clear();
  return place;
}

void NodeLink::told_of_board(std::uint32_t place, int to) noexcept {
  readers_[place].push_back({to, partners_[static_cast<std::size_t>(to)].written});
}

bool NodeLink::send(int to, std::span<const std::byte> head,
                    std::span<const std::byte> body) noexcept {
  Partner& partner = partners_[static_cast<std::size_t>(to)];
  Ring& ring = *partner.to;
  const auto bytes = static_cast<std::uint32_t>(head.size() + body.size());
  const std::uint32_t room = room_of(bytes);
  if (!has_room(partner, room)) return false;
  if (const std::uint32_t skipped = skipped_before(partner.written, room); skipped != 0) {
    const std::uint64_t start = partner.written + skipped;
    ring.size_at(start).store(0, std::memory_order_relaxed);
    ring.size_at(partner.written).store(kWrap, std::memory_order_release);
    partner.written = start;
  }
  std::byte* at = ring.data + partner.written % kRing + 8;
  std::memcpy(at, head.data(), head.size());
  if (!body.empty()) std::memcpy(at + head.size(), body.data(), body.size());
  ring.size_at(partner.written + room).store(0, std::memory_order_relaxed);
  // Either the receiver sees the message before it sleeps, or this process sees that the receiver
  // sleeps. This needs one order of the store and the load, made here or by the receiver
  // (want_bell).
  const auto size = ring.size_at(partner.written);
  if (partner.needs_fence)
    size.store(bytes, std::memory_order_seq_cst);
  else
    size.store(bytes, std::memory_order_release);
  partner.written += room;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  auto& wanted = partner.box->bell_wanted;
  if (wanted.load(std::memory_order_seq_cst) != 0 && wanted.exchange(0) != 0) {
    [[maybe_unused]] const auto n = ::write(partner.bell, "", 1);
  }
  return true;
}

std::span<const std::byte> NodeLink::first_of(Partner& partner) noexcept {
  Ring& ring = *partner.from;
  std::uint64_t read = partner.read.load(std::memory_order_relaxed);
  std::uint32_t bytes = ring.size_at(read).load(std::memory_order_acquire);
  if (bytes == kWrap) {
    read += kRing - read % kRing;
    bytes = ring.size_at(read).load(std::memory_order_acquire);
  }
  if (bytes == 0) return {};
  first_from_ = &partner;
  after_first_ = read + room_of(bytes);
  return {ring.data + read % kRing + 8, bytes};
}

std::span<const std::byte> NodeLink::first_of(int from) noexcept {
  return first_of(partners_[static_cast<std::size_t>(from)]);
}

std::span<const std::byte> NodeLink::first(int& from) noexcept {
  for (std::size_t i = 0; i < reached_.size(); ++i) {
    const std::size_t k = next_ + i < reached_.size() ? next_ + i : next_ + i - reached_.size();
    const std::span<const std::byte> message = first_of(reached_[k]);
    if (message.empty()) continue;
    from = reached_[k];
    next_ = k + 1 < reached_.size() ? k + 1 : 0;
    return message;
  }
  return {};
}

void NodeLink::want_bell(bool wanted) noexcept {
  // Stored only where it changes, because other processes read it with each message.
  const std::uint32_t to = wanted ? 1 : 0;
  if (own_->bell_wanted.load(std::memory_order_relaxed) == to) return;
  own_->bell_wanted.store(to, std::memory_order_seq_cst);
  // Makes the fence for the senders that rely on it; the others make a fence for each message.
  if (wanted && fences_others_) fence_all();
}

void NodeLink::drop_first() noexcept {
  Partner& partner = *first_from_;
  partner.read.store(after_first_, std::memory_order_relaxed);
  if (!partner.keeps) partner.from->read.store(after_first_, std::memory_order_release);
}

void NodeLink::keep_first() noexcept {
  first_from_->read.store(after_first_, std::memory_order_relaxed);
  first_from_->keeps = true;
}

bool NodeLink::any() const noexcept {
  for (const int p : reached_) {
    const Partner& partner = partners_[static_cast<std::size_t>(p)];
    // Read without a lock: if another thread reads on meanwhile, the answer may be either the old
    // or the new one.
    const std::uint64_t read = partner.read.load(std::memory_order_relaxed);
    const std::uint32_t size = partner.from->size_at(read).load(std::memory_order_seq_cst);
    if (size == 0) continue;
    if (size != kWrap || partner.from->size_at(0).load(std::memory_order_seq_cst) != 0) return true;
  }
  return false;
}

const std::byte* NodeLink::memory_of(int process, std::int64_t offset,
                                     std::int64_t bytes) const noexcept {
  const Partner& partner = partners_[static_cast<std::size_t>(process)];
  if (partner.heap == nullptr || offset < 0 || bytes < 0 || offset > partner.heap_bytes - bytes)
    return nullptr;
  return partner.heap + offset;
}

int NodeLink::read_memory(int process, std::byte* to, const std::byte* from,
                          std::int64_t bytes) const noexcept {
  const Partner& partner = partners_[static_cast<std::size_t>(process)];
  return read_process(partner.pid, to, reinterpret_cast<std::uint64_t>(from), bytes);
}

bool NodeLink::has_failed(int process) const noexcept {
  return partners_[static_cast<std::size_t>(process)].box->failed.load(std::memory_order_seq_cst) !=
         0;
}

void NodeLink::set_core(int core) noexcept {
  if (own_->core.load(std::memory_order_relaxed) != core)
    own_->core.store(core, std::memory_order_relaxed);
}

bool NodeLink::runs_elsewhere(int process) const noexcept {
  const int theirs =
      partners_[static_cast<std::size_t>(process)].box->core.load(std::memory_order_relaxed);
  return theirs != kAway && theirs != own_->core.load(std::memory_order_relaxed);
}

void NodeLink::silence_bell() noexcept {
  char rings[64];
  while (read(bell_, rings, sizeof rings) == static_cast<ssize_t>(sizeof rings)) {
  }
}

}  // namespace shmap
