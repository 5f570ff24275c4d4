// The messages of exchanges: what this process sends, and what it does with what comes.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/fault.h"
#include "core/processes/active_exchange.h"
#include "core/processes/exchanges.h"
#include "core/processes/shared_heap.h"

namespace shmap {
namespace {

constexpr int kFirstTag = ExchangeMessage::kTag + 1;  // of large parcels
constexpr int kTags = 1 << 20;
constexpr std::int64_t kPieceBytes = std::int64_t{256} << 20;

}  // namespace

// -------------------------------------------------------------------------------------- sending

void Exchanges::send_parts(Active& active) {
  const std::vector<Parcel>& all = active.exchange->sends;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t last = i;
    while (last < all.size() && all[last].peer == all[i].peer) ++last;
    send_to(active, all[i].peer, i, last);
    i = last;
  }
}

// Sends the parcels [first, last) of the exchange, which are all for `peer`.
void Exchanges::send_to(Active& active, int peer, std::size_t first, std::size_t last) {
  const std::span<const Parcel> parcels(active.exchange->sends.data() + first, last - first);
  Header header = Header::of(*active.exchange);
  for (const Parcel& parcel : parcels) header.bytes += parcel.bytes;
  header.digest = Message::digest_of(*active.exchange, header.bytes);
  const bool linked = link_ != nullptr && link_->reaches(peer);
  const bool together = header.bytes <= Message::kInline;
  alignas(8) std::byte body[Message::kInline];
  std::size_t body_bytes = 0;
  if (together) {
    const std::int64_t bytes = copy_parcels(parcels, header.in_front() ? header.front : body);
    if (!header.in_front()) body_bytes = static_cast<std::size_t>(bytes);
  } else if (const Lends how = linked ? lends(peer, parcels) : Lends::nothing;
             how != Lends::nothing) {
    header.lent = static_cast<std::uint32_t>(parcels.size());
    header.by_address = how == Lends::addresses ? 1 : 0;
    ++active.lent;
    for (const Parcel& parcel : parcels) {
      std::int64_t offset = 0;
      if (how == Lends::addresses)
        offset = reinterpret_cast<std::intptr_t>(parcel.data);
      else if (parcel.bytes != 0)
        offset = SharedHeap::of_process()->offset_of(parcel.data);
      std::memcpy(body + body_bytes, &offset, sizeof offset);
      body_bytes += sizeof offset;
    }
  } else {
    std::int32_t& tag = next_tag_[static_cast<std::size_t>(peer)];
    header.tag = kFirstTag + tag;
    tag = (tag + 1) % kTags;
  }
  const std::span<const std::byte> head = header.as_bytes();
  if (linked) {
    const std::span<const std::byte> behind(body, body_bytes);
    // The exchange has one message for each process.
    if (!link_->send(peer, head, behind)) active.letters.push(peer, head, behind);
  } else {
    const std::size_t size = sizeof header + body_bytes;
    auto message = std::make_unique_for_overwrite<std::byte[]>(size);
    std::memcpy(message.get(), &header, sizeof header);
    std::memcpy(message.get() + sizeof header, body, body_bytes);
    active.sends.push_back(
        messages_.send(message.get(), static_cast<std::int64_t>(size), peer, Message::kTag));
    active.messages.push_back(std::move(message));
  }
  if (header.tag == 0) return;
  for (const Parcel& parcel : parcels) {
    for (std::int64_t at = 0; at < parcel.bytes; at += kPieceBytes)
      active.sends.push_back(messages_.send(
          parcel.data + at, std::min(kPieceBytes, parcel.bytes - at), peer, header.tag));
  }
}

// ------------------------------------------------------------------------------------- arriving

void Exchanges::accept(Active& active, int from, const Message& message) {
  const Header& header = message.header();
  const auto source =
      std::ranges::find_if(active.sources, [&](const auto& s) { return s.peer == from; });
  const bool wanted = source != active.sources.end() && !source->heard;
  if (!wanted || header.check != active.exchange->check || header.bytes != source->bytes) {
    return fail("the processes are out of step at collective number " +
                    std::to_string(active.place.number) +
                    " of the mesh: " + peers_.text(peers_.self()) + " runs " +
                    active.exchange->label.text() + ", and " + peers_.text(from) + " runs " +
                    header.label.text() + (wanted ? "" : ", of which nothing is expected here") +
                    ". Every process of a mesh has to run the same collectives in the same "
                    "order, on blocks of the same type: look for what differs between processes "
                    "before that (a branch on process_index(), a loop of another length, data "
                    "of another shape, two threads that communicate)",
                true);
  }
  if (header.program != active.exchange->program || header.constants != active.exchange->constants)
    return fail_of_programs(active, from, header);
  source->heard = true;
  --active.awaited;
  if (header.lent != 0)
    return borrow(active, from, static_cast<std::size_t>(source - active.sources.begin()), message);
  const std::byte* data = message.body();
  for (std::size_t i = source->first; i < source->last; ++i) {
    const Parcel& parcel = active.exchange->receives[i];
    std::byte* const to = place_for(active, i);
    if (header.tag == 0) {
      if (parcel.bytes != 0) std::memcpy(to, data, static_cast<std::size_t>(parcel.bytes));
      data += parcel.bytes;
      continue;
    }
    active.receives_parcels = true;
    for (std::int64_t at = 0; at < parcel.bytes; at += kPieceBytes) {
      active.receives.push_back(
          messages_.receive(to + at, std::min(kPieceBytes, parcel.bytes - at), from, header.tag));
    }
  }
}

// Returns the memory that a receive is written to: its own, or memory that the exchange keeps for
// its work.
std::byte* Exchanges::place_for(Active& active, std::size_t receive) {
  const Parcel& parcel = active.exchange->receives[receive];
  if (active.exchange->work == nullptr || parcel.data != nullptr) return parcel.data;
  std::byte* const to =
      active.taken
          .emplace_back(std::make_unique_for_overwrite<std::byte[]>(std::size_t(parcel.bytes)))
          .get();
  active.addresses[receive] = to;
  return to;
}

void Exchanges::match_or_keep(int from, const Message& message) {
  const Header& header = message.header();
  const Place place{header.space, header.number, header.round};
  try {
    fault::point("receive", peers_.self());
  } catch (const std::exception& e) {
    return fail(peers_.text(peers_.self()) + " cannot receive what " + peers_.text(from) +
                    " sends: " + e.what(),
                true);
  }
  if (Active* active = active_.find(place)) return accept(*active, from, message);
  if (skipped_.is_own(place)) return;  // the sender hears why
  const ExchangeHistory& history = histories_.of(header.space);
  if (const auto* done = history.find_done(header.number, header.round)) {
    return fail("the processes are out of step at collective number " +
                    std::to_string(header.number) + " of the mesh: " + peers_.text(peers_.self()) +
                    " has run " + done->label.text() + ", which takes nothing from " +
                    peers_.text(from) + ", and that one runs " + header.label.text() +
                    ". Every process of a mesh has to run the same collectives in the same order",
                true);
  }
  early_[{place, from}].assign(message.bytes.begin(), message.bytes.end());
}

bool Exchanges::take_messages(Take take) {
  bool any = link_ != nullptr && take_from_link(take);
  if (!listens_) return any;
  for (;;) {
    int from = -1;
    const Message message{inboxes_.first(messages_, from)};
    if (message.bytes.empty()) return any;
    any = true;
    handle(from, message);
    inboxes_.renew_first(messages_);
  }
}

void Exchanges::handle(int from, const Message& message) {
  const Header& header = message.header();
  const auto text = [&] {
    return std::string(reinterpret_cast<const char*>(message.body()), header.text_bytes);
  };
  switch (header.kind) {
    case Kind::exchange:
      if (fault_.empty()) match_or_keep(from, message);
      return;
    case Kind::on_board: {
      // The sender may overwrite this entry of its board once the message has been dropped.
      Header whole = header;
      whole.kind = Kind::exchange;
      const std::byte* const parcels = on_board(from, header);
      Bytes bytes(sizeof whole + static_cast<std::size_t>(whole.bytes));
      std::memcpy(bytes.data(), &whole, sizeof whole);
      std::memcpy(bytes.data() + sizeof whole, parcels, static_cast<std::size_t>(whole.bytes));
      if (fault_.empty()) match_or_keep(from, {bytes});
      return;
    }
    case Kind::taken:
      if (Active* active = active_.find({header.space, header.number, header.round});
          active != nullptr && --active->lent < 0)
        fail(peers_.text(from) + " has given back what it was not lent, in collective number " +
                 std::to_string(active->place.number) + " of the mesh, " +
                 active->exchange->label.text() + "; please report the program",
             true);
      return;
    case Kind::leave: {
      left_[static_cast<std::size_t>(from)] = 1;
      any_left_ = true;
      for (const auto& active : active_) {
        for (const Active::Source& source : active->sources) {
          if (source.peer == from && !source.heard && fault_.empty()) {
            fail(peers_.text(from) +
                     " has left the job: its program has ended, with the exit code 0, while "
                     "others wait for it in collective number " +
                     std::to_string(active->place.number) + " of the mesh, " +
                     active->exchange->label.text(),
                 true);
          }
        }
      }
      return;
    }
    case Kind::fault:
      return fail(text(), false);
    case Kind::value:
      if (fault_.empty()) take_value(from, header, text());
      return;
    case Kind::mesh:
      if (fault_.empty()) take_mesh(from, header, text());
      return;
    case Kind::skipped:
    case Kind::left_out:
      if (fault_.empty()) take_skip(from, header, text());
      return;
    case Kind::ask:
      return answer(from, header);
    case Kind::answer:
      if (Active* active = active_.find({header.space, header.number, header.round})) {
        for (Active::Source& source : active->sources)
          if (source.peer == from) source.answer = text();
      }
      return;
  }
}

}  // namespace shmap
