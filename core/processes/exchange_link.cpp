// Exchanges with processes of the same node through shared memory (NodeLink): small parcels are in
// the messages; large ones lie in the sender's shared heap, where the receiver reads them.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/processes/active_exchange.h"
#include "core/processes/exchange.h"

namespace shmap {

Exchanges::Lends Exchanges::lends(int peer, std::span<const Parcel> parcels) const {
  if (parcels.size() > kMostLent) return Lends::nothing;
  const SharedHeap* heap = SharedHeap::of_process();
  if (heap != nullptr && link_->lends_to(peer) &&
      std::ranges::all_of(parcels,
                          [&](const Parcel& p) { return p.bytes == 0 || heap->holds(p.data); }))
    return Lends::offsets;
  return link_->shows_to(peer) ? Lends::addresses : Lends::nothing;
}

void Exchanges::post(int to, const Header& header, std::span<const std::byte> body) {
  const std::span<const std::byte> head(reinterpret_cast<const std::byte*>(&header), sizeof header);
  // Messages to one process keep their order: the last one says that this process leaves.
  const bool before =
      std::ranges::any_of(letters_, [&](const Letter& letter) { return letter.to == to; });
  if (!before && link_->send(to, head, body)) return;
  Letter& letter = letters_.emplace_back(Letter{to, {head.begin(), head.end()}});
  letter.bytes.insert(letter.bytes.end(), body.begin(), body.end());
}

bool Exchanges::post_letters(std::deque<Letter>& letters) {
  bool any = false;
  while (!letters.empty() && link_->send(letters.front().to, letters.front().bytes, {})) {
    letters.pop_front();
    any = true;
  }
  return any;
}

bool Exchanges::take_from_link() {
  bool any = false;
  for (;;) {
    int from = -1;
    const Message message{link_->first(from)};
    if (message.bytes.empty()) return any;
    any = true;
    handle(from, message);
    link_->drop_first();
  }
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
    const std::int64_t most = by_address ? kCallBytes : kCopyBytes;
    for (std::int64_t at = 0; at < parcel.bytes; at += most) {
      copies_.push_back({&active, from, parcel.data + at, theirs + at,
                         std::min(most, parcel.bytes - at), by_address});
      ++source.copies;
      ++active.copies;
    }
  }
}

bool Exchanges::copy_some(std::unique_lock<std::mutex>& lock, EndedList& ended) {
  bool any = false;
  while (!copies_.empty() && fault_.empty()) {
    const Copy copy = copies_.front();
    copies_.pop_front();
    any = true;
    Active& active = *copy.active;
    ++active.copying;
    lock.unlock();
    int error = 0;
    if (copy.by_address)
      error = link_->read_memory(copy.peer, copy.to, copy.from, copy.bytes);
    else
      std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    // Until the peer failed, it did not change the memory that it lends.
    const bool sure = !link_->has_failed(copy.peer);
    lock.lock();
    --active.copying;
    if (!sure || error != 0) take_messages();  // the peer has said why it failed
    if (!sure && fault_.empty()) fail(peers_.text(copy.peer) + " has given up", true);
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
    const auto source =
        std::ranges::find_if(active.sources, [&](const auto& s) { return s.peer == copy.peer; });
    if (--source->copies != 0) continue;
    Header taken;
    taken.kind = Kind::taken;
    taken.space = active.place.space;
    taken.number = active.place.number;
    taken.round = active.place.round;
    post(copy.peer, taken, {});
    conclude(active, ended);
  }
  return any;
}

}  // namespace shmap
