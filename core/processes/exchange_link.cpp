// Exchanges with processes of the same node through shared memory (NodeLink): small parcels are in
// the messages; large ones lie in the sender's shared heap, where the receiver reads them.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "core/processes/active_exchange.h"
#include "core/processes/exchanges.h"
#include "core/processes/shared_heap.h"

namespace shmap {
namespace {

// The most parcels whose places fit in a message.
constexpr std::size_t kMostLent = ExchangeMessage::kInline / sizeof(std::int64_t);
// Bytes that a thread copies before it looks again: from memory that is mapped here, and by a
// system call (process_vm_readv).
constexpr std::int64_t kCopyBytes = std::int64_t{256} << 10;
constexpr std::int64_t kCallBytes = std::int64_t{4} << 20;

}  // namespace

Exchanges::Lends Exchanges::lends(int peer, std::span<const Parcel> parcels) const {
  if (parcels.size() > kMostLent) return Lends::nothing;
  const SharedHeap* heap = SharedHeap::of_process();
  if (heap != nullptr && link_->lends_to(peer) &&
      std::ranges::all_of(parcels,
                          [&](const Parcel& p) { return p.bytes == 0 || heap->holds(p.data); }))
    return Lends::offsets;
  return link_->shows_to(peer) ? Lends::addresses : Lends::nothing;
}

bool Exchanges::read_in_place(std::span<const int> processes) const noexcept {
  return link_ != nullptr && link_->all_read_heaps() &&
         std::ranges::all_of(processes, [&](int p) { return peers_.on_this_node(p); });
}

void Exchanges::post(int to, const Header& header, std::span<const std::byte> body) {
  const std::span<const std::byte> head = header.as_bytes();
  // Messages to one process keep their order: the last one says that this process leaves.
  if (!letters_.has_for(to) && link_->send(to, head, body)) return;
  letters_.push(to, head, body);
}

bool Exchanges::take_from_link(Take take) {
  bool any = false;
  for (;;) {
    int from = -1;
    const Message message{link_->first(from)};
    if (message.bytes.empty()) return any;
    if (take == Take::what_is_needed && is_early(message.header()) && !waits_for_others())
      return any;
    any = true;
    handle(from, message);
    link_->drop_first();
  }
}

// Whether the message belongs to an exchange that this process has not reached, as far as is known.
bool Exchanges::is_early(const Header& header) const noexcept {
  return (header.kind == Kind::exchange || header.kind == Kind::on_board) &&
         active_.find({header.space, header.number, header.round}) == nullptr;
}

// An exchange that waits for room may need the room that this process gives by taking messages.
bool Exchanges::waits_for_others() const noexcept {
  return !letters_.empty() || awaits_messages() ||
         std::ranges::any_of(active_, [](const auto& active) { return !active->letters.empty(); });
}

bool Exchanges::awaits_messages() const noexcept {
  return std::ranges::any_of(
      active_, [](const auto& active) { return active->awaited != 0 || active->lent != 0; });
}

void Exchanges::borrow(Active& active, int from, std::size_t index, const Message& message) {
  Active::Source& source = active.sources[index];
  const std::byte* offsets = message.body();
  for (std::size_t i = source.first; i < source.last; ++i) {
    const Parcel& parcel = active.exchange->receives[i];
    std::int64_t offset = 0;
    std::memcpy(&offset, offsets + (i - source.first) * sizeof offset, sizeof offset);
    const bool by_address = message.header().by_address != 0;
    const std::byte* theirs =
        by_address ? reinterpret_cast<const std::byte*>(static_cast<std::intptr_t>(offset))
                   : link_->memory_of(from, offset, parcel.bytes);
    if (active.exchange->work != nullptr && parcel.data == nullptr && !by_address) {
      active.addresses[i] = theirs;
      source.read_in_place = true;
      continue;
    }
    std::byte* const to = place_for(active, i);
    const std::int64_t most = by_address ? kCallBytes : kCopyBytes;
    for (std::int64_t at = 0; at < parcel.bytes; at += most) {
      copies_.push_back(
          {&active, from, to + at, theirs + at, std::min(most, parcel.bytes - at), by_address});
      ++source.copies;
      ++active.copies;
    }
  }
}

// Lists the copies that this process makes itself. They come first, because they wait for no other
// process.
void Exchanges::list_copies(Active& active) {
  for (const OwnCopy& own : active.exchange->copies) {
    for (std::int64_t at = 0; at < own.bytes; at += kCopyBytes) {
      copies_.push_back(
          {&active, kOwn, own.to + at, own.from + at, std::min(kCopyBytes, own.bytes - at), false});
      ++active.copies;
    }
  }
}

// Lists the parts of an exchange's work once everything that the work reads has come. False if the
// parts were listed before.
bool Exchanges::begin_work(Active& active) {
  if (std::exchange(active.work_begun, true)) return false;
  const int parts = active.exchange->work->parts();
  for (int part = 0; part < parts; ++part)
    copies_.push_back({&active, kWork, nullptr, nullptr, 0, false, part});
  active.copies += parts;
  return true;
}

// Tells a process that this process has read the parcels that it lent.
void Exchanges::give_back(Active& active, int peer) {
  Header taken;
  taken.kind = Kind::taken;
  taken.space = active.place.space;
  taken.number = active.place.number;
  taken.round = active.place.round;
  post(peer, taken, {});
}

int Exchanges::run_copy(const Copy& copy, std::string& thrown) const noexcept {
  if (copy.by_address) return link_->read_memory(copy.peer, copy.to, copy.from, copy.bytes);
  if (copy.peer != kWork) {
    std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    return 0;
  }
  try {
    copy.active->exchange->work->run(copy.part, copy.active->addresses.data());
  } catch (const std::exception& e) {
    thrown = e.what();
  } catch (...) {
    thrown = "an exception of a type that is not a std::exception";
  }
  return 0;
}

// A process that lends its memory keeps the memory unchanged until the process fails. Returns a
// lender of the copy that has failed, so that the copied bytes may be wrong, or kNobody.
int Exchanges::failed_lender(const Copy& copy) const noexcept {
  if (copy.peer == kOwn) return kNobody;
  if (copy.peer != kWork) return link_->has_failed(copy.peer) ? copy.peer : kNobody;
  for (const Active::Source& source : copy.active->sources)
    if (source.read_in_place && link_->has_failed(source.peer)) return source.peer;
  return kNobody;
}

bool Exchanges::copy_some(std::unique_lock<std::mutex>& lock, EndedExchanges& ended) {
  bool any = false;
  while (!copies_.empty() && fault_.empty()) {
    const Copy copy = copies_.front();
    copies_.pop_front();
    any = true;
    Active& active = *copy.active;
    ++active.copying;
    lock.unlock();
    std::string thrown;
    const int error = run_copy(copy, thrown);
    const int failed = failed_lender(copy);
    lock.lock();
    --active.copying;
    if (failed != kNobody || error != 0) take_messages();  // the peer has said why it failed
    if (failed != kNobody && fault_.empty()) fail(peers_.text(failed) + " has given up", true);
    if (!thrown.empty() && fault_.empty())
      fail(peers_.text(peers_.self()) + " could not work on what it received: " + thrown +
               ", in collective number " + std::to_string(active.place.number) + " of the mesh, " +
               active.exchange->label.text(),
           true);
    if (!fault_.empty()) break;
    if (error == ESRCH) continue;  // the peer is dead: the watch over the processes reports it
    if (error != 0) {
      fail("the memory of " + peers_.text(copy.peer) + " cannot be read any more (" +
               std::strerror(error) + "), in collective number " +
               std::to_string(active.place.number) + " of the mesh, " +
               active.exchange->label.text() +
               ". Where the system has begun to forbid it, SHMAP_SHARED_MEMORY=messages sends such "
               "data through MPI",
           true);
      break;
    }
    --active.copies;
    // Of one source the work may read some parcels in place while others are copied: the source is
    // given back once, after the later of the two.
    for (Active::Source& source : active.sources) {
      const bool last = copy.peer == kWork ? active.copies == 0 && source.read_in_place
                                           : source.peer == copy.peer && --source.copies == 0 &&
                                                 !source.read_in_place;
      if (last) give_back(active, source.peer);
    }
    conclude(active, ended);
  }
  return any;
}

}  // namespace shmap
