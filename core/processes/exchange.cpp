#include "core/processes/exchange.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/base/fault.h"
#include "core/base/signals_blocked.h"
#include "core/processes/active_exchange.h"
#include "shmap/error.h"

namespace shmap {
namespace {

constexpr std::size_t kInboxes = 16;

void copy_text(char* to, std::size_t room, std::string_view from) {
  const std::size_t n = std::min(from.size(), room - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

}  // namespace

void ExchangeLabel::set(const char* o, std::string_view a, std::string_view t, const char* f,
                        std::uint32_t l, std::int64_t n) {
  copy_text(op, sizeof op, o);
  copy_text(axes, sizeof axes, a);
  copy_text(dtype, sizeof dtype, t);
  std::string_view path = f != nullptr ? f : "";
  if (path.size() >= sizeof file) path.remove_prefix(path.size() - sizeof file + 1);
  copy_text(file, sizeof file, path);
  line = l;
  bytes = n;
}

std::string ExchangeLabel::text() const {
  std::string s = op;
  if (dtype[0] != 0) s += std::string(" of ") + dtype;
  s += ", " + std::to_string(bytes) + " bytes a device";
  if (axes[0] != 0) s += std::string(", over ") + axes;
  if (file[0] != 0) s += std::string(" at ") + file + ":" + std::to_string(line);
  return s;
}

Exchanges::Exchanges(MessagePassing& messages, Peers& peers, NodeLink* link, double warn_sec,
                     double timeout_sec)
    : messages_(messages),
      peers_(peers),
      link_(link),
      listens_(link == nullptr || !link->reaches_all()),
      warn_sec_(warn_sec),
      timeout_sec_(timeout_sec),
      next_tag_(static_cast<std::size_t>(peers.size()), 0),
      left_(static_cast<std::size_t>(peers.size()), 0),
      crowded_(peers.crowded()) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  constexpr auto kRoom = static_cast<std::size_t>(sizeof(Header) + kInline);
  for (std::size_t i = 0; listens_ && i < kInboxes; ++i) {
    Inbox& box = inbox_.emplace_back();
    box.data = std::make_unique<std::byte[]>(kRoom);
    box.request = messages_.receive(box.data.get(), kRoom, MessagePassing::kAnyone, kMessageTag);
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { thread_main(); });
}

void Exchanges::EndedList::push(ExchangeEnd* end, std::exception_ptr error) {
  if (first_.end == nullptr)
    first_ = {end, std::move(error)};
  else
    more_.push_back({end, std::move(error)});
}

void Exchanges::EndedList::tell() noexcept {
  if (first_.end == nullptr) return;
  std::exchange(first_, {}).tell();
  for (Ended& e : std::exchange(more_, {})) e.tell();
}

// --------------------------------------------------------------------------------------- places

Exchanges::Active*& Exchanges::chain_of(const Place& place) noexcept {
  return by_place_[(place.space ^ (place.number * 4 + place.round)) % std::size(by_place_)];
}

Exchanges::Active* Exchanges::find(const Place& place) noexcept {
  Active* active = chain_of(place);
  while (active != nullptr && active->place != place) active = active->next_by_place;
  return active;
}

void Exchanges::forget_place(Active& active) noexcept {
  Active** at = &chain_of(active.place);
  while (*at != &active) at = &(*at)->next_by_place;
  *at = active.next_by_place;
}

const Exchanges::History::Done* Exchanges::find_done(const History& history,
                                                     const Header& header) const noexcept {
  if (header.number > history.latest) return nullptr;  // mostly a message that comes early
  const auto it = std::ranges::find_if(history.done, [&](const History::Done& done) {
    return done.number == header.number && done.round == header.round;
  });
  return it == history.done.end() ? nullptr : &*it;
}

// ------------------------------------------------------------------------------------- starting

void Exchanges::start(const ProcessExchange& exchange, ExchangeEnd& end,
                      Attempt* attempt) noexcept {
  EndedList ended;
  bool waits = false;
  if (attempt == nullptr) shorten_naps();
  try {
    std::string injected;
    try {
      fault::point("send", peers_.self());
    } catch (const std::exception& e) {
      injected = peers_.text(peers_.self()) + " cannot send: " + e.what();
    }
    std::unique_lock lock(mutex_);
    if (!injected.empty()) fail(injected, true);
    if (!fault_.empty() || stopped_) {
      ended.push(&end, error_for(exchange.label, exchange.number));
    } else {
      if (spare_.empty()) spare_.push_back(std::make_unique<Active>());
      active_.push_back(std::move(spare_.back()));
      spare_.pop_back();
      Active& active = *active_.back();
      active.exchange = &exchange;
      active.end = &end;
      active_count_.fetch_add(1, std::memory_order_relaxed);
      try {
        begin(active, ended, attempt);
        if (fault_.empty()) move_on(lock, ended);
      } catch (const std::exception& e) {
        fail(e.what(), true);
      }
    }
    if (!fault_.empty()) end_all(ended);
    waits = !active_.empty();
  } catch (...) {
    return end.exchanged(std::current_exception());  // no memory to begin the exchange
  }
  if (!ended.empty()) taken_by_others_.fetch_add(1, std::memory_order_relaxed);
  ended.tell();
  // A nap ends soon by itself, and a message of the link wakes the thread without help.
  if (!waits || !needs_looks_.load(std::memory_order_relaxed)) return;
  // Stores the flag again, in one order with the accesses of rest(): either this thread sees that
  // the exchange thread sleeps, or that thread sees the flag. If another thread's look has cleared
  // the flag in between, the next look clears it again.
  needs_looks_.store(true, std::memory_order_seq_cst);
  wake_thread(Rest::sleep);
}

void Exchanges::run(const ProcessExchange& exchange) {
  struct Waiter final : ExchangeEnd {
    std::atomic<bool> done{false};
    std::exception_ptr error;
    void exchanged(std::exception_ptr e) noexcept override {
      error = std::move(e);
      done.store(true, std::memory_order_release);
    }
  } waiter;
  start(exchange, waiter);
  looking(detail::Looking::begins);
  for (int turns = 0; !waiter.done.load(std::memory_order_acquire); ++turns) {
    poke();
    if (turns > 200)
      usleep(turns > 2000 ? 500 : 20);
    else
      sched_yield();
  }
  looking(detail::Looking::ends);
  if (waiter.error != nullptr) std::rethrow_exception(waiter.error);
}

void Exchanges::remember_begun(History& history, const ProcessExchange& exchange,
                               Clock::time_point now) {
  if (exchange.number < history.latest) return;
  history.latest = exchange.number;
  history.label = exchange.label;
  history.when = now;
}

void Exchanges::remember_done(History& history, const ProcessExchange& exchange,
                              Clock::time_point begun) {
  const History::Done done{exchange.number, exchange.round, exchange.label, begun, ++done_count_};
  if (history.done.size() < kRemembered) {
    history.done.push_back(done);
    return;
  }
  history.done[history.oldest] = done;
  history.oldest = (history.oldest + 1) % kRemembered;
}

void Exchanges::begin(Active& active, EndedList& ended, Attempt* attempt) {
  const ProcessExchange& exchange = *active.exchange;
  active.place = {exchange.space, exchange.number, exchange.round};
  active.begun = Clock::now();
  const std::vector<Parcel>& all = active.exchange->receives;
  for (std::size_t i = 0; i < all.size();) {
    Active::Source source{all[i].peer, false, i, i, 0, 0, false, {}};
    for (; source.last < all.size() && all[source.last].peer == source.peer; ++source.last)
      source.bytes += all[source.last].bytes;
    i = source.last;
    active.sources.push_back(std::move(source));
  }
  active.awaited = active.sources.size();
  const bool sent = attempt != nullptr && std::exchange(attempt->begun, false);
  if (sent) {
    for (std::size_t i = 0; i < active.sources.size(); ++i)
      active.sources[i].heard = attempt->from[i].heard;
    active.awaited = attempt->awaited;
    if (exchange.work != nullptr) active.addresses = attempt->addresses;
  } else {
    remember_begun(history_[exchange.space], exchange, active.begun);
    if (exchange.work != nullptr) active.addresses.assign(all.size(), nullptr);
  }
  Active*& chain = chain_of(active.place);
  active.next_by_place = chain;
  chain = &active;
  if (!sent) {
    send_parts(active);
    list_copies(active);
  }
  for (Active::Source& source : active.sources) {
    if (source.heard) continue;
    const auto early = early_.find({active.place, source.peer});
    if (early != early_.end()) {
      const Bytes bytes = std::move(early->second);
      early_.erase(early);
      accept(active, source.peer, {bytes});
    } else if (left_[static_cast<std::size_t>(source.peer)]) {
      fail(peers_.text(source.peer) +
               " has left the job: its program has ended, with the exit code 0, before "
               "collective number " +
               std::to_string(active.place.number) + " of the mesh, " +
               active.exchange->label.text(),
           true);
    }
    if (!fault_.empty()) return;
  }
  // Messages that came early for this exchange, but from processes that are none of its sources:
  // accept() refuses them.
  const auto other = early_.lower_bound({active.place, -1});
  if (other != early_.end() && other->first.first == active.place) {
    const Bytes bytes = other->second;
    return accept(active, other->first.second, {bytes});
  }
  conclude(active, ended);
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
  Header header = header_of(*active.exchange);
  for (const Parcel& parcel : parcels) header.bytes += parcel.bytes;
  header.digest = digest_of(*active.exchange, header.bytes);
  const bool linked = link_ != nullptr && link_->reaches(peer);
  const bool together = header.bytes <= kInline;
  alignas(8) std::byte body[kInline];
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
  const std::span<const std::byte> head(reinterpret_cast<const std::byte*>(&header), sizeof header);
  if (linked) {
    const std::span<const std::byte> behind(body, body_bytes);
    if (!active.letters.empty() || !link_->send(peer, head, behind)) {
      Letter& letter = active.letters.emplace_back(Letter{peer, {head.begin(), head.end()}});
      letter.bytes.insert(letter.bytes.end(), behind.begin(), behind.end());
    }
  } else {
    const std::size_t size = sizeof header + body_bytes;
    auto message = std::make_unique_for_overwrite<std::byte[]>(size);
    std::memcpy(message.get(), &header, sizeof header);
    std::memcpy(message.get() + sizeof header, body, body_bytes);
    active.sends.push_back(
        messages_.send(message.get(), static_cast<std::int64_t>(size), peer, kMessageTag));
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
  if (Active* active = find(place)) return accept(*active, from, message);
  const History& history = history_[header.space];
  if (const History::Done* done = find_done(history, header)) {
    return fail("the processes are out of step at collective number " +
                    std::to_string(header.number) + " of the mesh: " + peers_.text(peers_.self()) +
                    " has run " + done->label.text() + ", which takes nothing from " +
                    peers_.text(from) + ", and that one runs " + header.label.text() +
                    ". Every process of a mesh has to run the same collectives in the same order",
                true);
  }
  early_[{place, from}].assign(message.bytes.begin(), message.bytes.end());
}

bool Exchanges::take_messages() {
  bool any = link_ != nullptr && take_from_link();
  if (!listens_) return any;
  for (;;) {
    Inbox& box = inbox_[next_inbox_];
    MessagePassing::Arrival arrival{};
    if (box.request == nullptr || !messages_.test(box.request, &arrival)) return any;
    any = true;
    handle(arrival.from, {{box.data.get(), static_cast<std::size_t>(arrival.bytes)}});
    box.request =
        messages_.receive(box.data.get(), static_cast<std::int64_t>(sizeof(Header)) + kInline,
                          MessagePassing::kAnyone, kMessageTag);
    next_inbox_ = (next_inbox_ + 1) % inbox_.size();
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
      if (Active* active = find({header.space, header.number, header.round})) --active->lent;
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
    case Kind::ask:
      return answer(from, header);
    case Kind::answer:
      if (Active* active = find({header.space, header.number, header.round})) {
        for (Active::Source& source : active->sources)
          if (source.peer == from) source.answer = text();
      }
      return;
  }
}

// Returns whether any message moved.
bool Exchanges::progress(EndedList& ended) {
  bool any = take_messages();
  any = post_letters(letters_) || any;
  for (std::size_t i = 0; i < active_.size() && fault_.empty();) {
    Active& active = *active_[i];
    const std::size_t before = active.sends.size() + active.receives.size();
    for (auto* list : {&active.sends, &active.receives}) {
      std::erase_if(*list, [&](MessagePassing::Request& request) {
        return request == nullptr || messages_.test(request, nullptr);
      });
    }
    any = any || active.sends.size() + active.receives.size() != before;
    any = post_letters(active.letters) || any;
    const std::size_t count = active_.size();
    conclude(active, ended);
    if (active_.size() == count) ++i;
  }
  std::erase_if(outgoing_, [&](Outgoing& out) {
    return out.request == nullptr || messages_.test(out.request, nullptr);
  });
  return any;
}

void Exchanges::conclude(Active& active, EndedList& ended) {
  std::erase_if(active.sends, [&](MessagePassing::Request& request) {
    return request == nullptr || messages_.test(request, nullptr);
  });
  if (active.awaited != 0 || !active.sends.empty() || !active.receives.empty() ||
      !active.letters.empty() || active.copies != 0)
    return;
  if (active.exchange->work != nullptr && begin_work(active)) return;
  if (active.lent != 0) return;
  remember_done(history_[active.place.space], *active.exchange, active.begun);
  ended.push(active.end, nullptr);
  forget_place(active);
  const auto it = std::ranges::find_if(active_, [&](const auto& a) { return a.get() == &active; });
  std::swap(*it, active_.back());
  active.reset();
  spare_.push_back(std::move(active_.back()));
  active_.pop_back();
  active_count_.fetch_sub(1, std::memory_order_relaxed);
}

detail::LookAgain Exchanges::poke() noexcept {
  if (active_count_.load(std::memory_order_relaxed) == 0) return detail::LookAgain::no_reason;
  const auto again = crowded_ ? detail::LookAgain::yielding : detail::LookAgain::soon;
  if (!listens_ && !needs_looks_.load(std::memory_order_relaxed) && !link_->any()) return again;
  EndedList ended;
  bool moved = false;
  {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || stopped_) return again;
    moved = move_on(lock, ended);
  }
  if (!ended.empty()) taken_by_others_.fetch_add(1, std::memory_order_relaxed);
  ended.tell();
  return moved ? detail::LookAgain::moved : again;
}

// Returns whether any message moved.
bool Exchanges::move_on(std::unique_lock<std::mutex>& lock, EndedList& ended) noexcept {
  bool any = false;
  try {
    any = progress(ended);
    any = copy_some(lock, ended) || any;
    if (!fault_.empty()) end_all(ended);
  } catch (const std::exception& e) {
    fail(e.what(), true);
    end_all(ended);
  }
  bool needs = listens_ ? !active_.empty() : !letters_.empty() || !copies_.empty();
  for (std::size_t i = 0; i < active_.size() && !needs; ++i) {
    const Active& active = *active_[i];
    needs = !active.sends.empty() || !active.receives.empty() || !active.letters.empty();
  }
  needs_looks_.store(needs, std::memory_order_relaxed);
  return any;
}

}  // namespace shmap
