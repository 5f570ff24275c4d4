#include "core/processes/exchange.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/signals_blocked.h"
#include "core/processes/active_exchange.h"
#include "shmap/error.h"

namespace shmap {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kInboxes = 16;
constexpr std::size_t kRemembered = 256;

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

Exchanges::Exchanges(MessagePassing& messages, Peers& peers, double warn_sec, double timeout_sec)
    : messages_(messages),
      peers_(peers),
      warn_sec_(warn_sec),
      timeout_sec_(timeout_sec),
      next_tag_(static_cast<std::size_t>(peers.size()), 0),
      left_(static_cast<std::size_t>(peers.size()), 0) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  constexpr auto kRoom = static_cast<std::size_t>(sizeof(Header) + kInline);
  for (std::size_t i = 0; i < kInboxes; ++i) {
    Inbox& box = inbox_.emplace_back();
    box.data = std::make_unique<std::byte[]>(kRoom);
    box.request = messages_.receive(box.data.get(), kRoom, MessagePassing::kAnyone, kMessageTag);
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { thread_main(); });
}

// ------------------------------------------------------------------------------------- starting

void Exchanges::start(const ProcessExchange& exchange, ExchangeEnd& end) noexcept {
  std::vector<Ended> ended;
  try {
    std::lock_guard lock(mutex_);
    if (!fault_.empty() || stopped_) {
      ended.push_back({&end, error_for(exchange.label, exchange.number)});
    } else {
      auto made = std::make_unique<Active>();
      Active& active = *made;
      active.exchange = &exchange;
      active.end = &end;
      active_.push_back(std::move(made));
      active_count_.fetch_add(1, std::memory_order_relaxed);
      try {
        begin(active, ended);
        if (fault_.empty()) progress(ended);
      } catch (const std::exception& e) {
        fail(e.what(), true);
      }
    }
    if (!fault_.empty()) end_all(ended);
  } catch (...) {
    return end.exchanged(std::current_exception());  // no memory to begin with
  }
  tell(ended);
  if (active_count_.load(std::memory_order_relaxed) > 0 && asleep_.exchange(false)) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = write(wake_, &one, sizeof one);
  }
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
  for (int turns = 0; !waiter.done.load(std::memory_order_acquire); ++turns) {
    poke();
    if (turns > 200)
      usleep(turns > 2000 ? 500 : 20);
    else
      sched_yield();
  }
  if (waiter.error != nullptr) std::rethrow_exception(waiter.error);
}

void Exchanges::begin(Active& active, std::vector<Ended>& ended) {
  const ProcessExchange& exchange = *active.exchange;
  active.place = {exchange.space, exchange.number, exchange.round};
  const std::vector<Parcel>& all = active.exchange->receives;
  for (std::size_t i = 0; i < all.size();) {
    Active::Source source{all[i].peer, false, i, i, 0, {}};
    for (; source.last < all.size() && all[source.last].peer == source.peer; ++source.last)
      source.bytes += all[source.last].bytes;
    i = source.last;
    active.sources.push_back(std::move(source));
  }
  active.awaited = active.sources.size();
  History& history = history_[exchange.space];
  if (exchange.number >= history.latest) {
    history.latest = exchange.number;
    history.label = exchange.label;
    history.when = Clock::now();
  }
  by_place_[active.place] = &active;
  send_parts(active);
  for (Active::Source& source : active.sources) {
    const auto early = early_.find({active.place, source.peer});
    if (early != early_.end()) {
      const Message message = std::move(early->second);
      early_.erase(early);
      accept(active, source.peer, message);
    } else if (left_[static_cast<std::size_t>(source.peer)]) {
      fail(peers_.text(source.peer) +
               " has left the job: its program has ended, with the exit code 0, before this "
               "collective",
           true);
    }
    if (!fault_.empty()) return;
  }
  conclude(active, ended);
}

void Exchanges::send_parts(Active& active) {
  const std::vector<Parcel>& all = active.exchange->sends;
  for (std::size_t i = 0; i < all.size();) {
    const int peer = all[i].peer;
    std::size_t last = i;
    Header header;
    header.space = active.place.space;
    header.number = active.place.number;
    header.round = active.place.round;
    header.check = active.exchange->check;
    header.label = active.exchange->label;
    for (; last < all.size() && all[last].peer == peer; ++last) header.bytes += all[last].bytes;
    const bool together = header.bytes <= kInline;
    if (!together) {
      std::int32_t& tag = next_tag_[static_cast<std::size_t>(peer)];
      header.tag = kFirstTag + tag;
      tag = (tag + 1) % kTags;
    }
    const std::int64_t size =
        static_cast<std::int64_t>(sizeof header) + (together ? header.bytes : 0);
    auto message = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size));
    std::memcpy(message.get(), &header, sizeof header);
    std::byte* to = message.get() + sizeof header;
    for (std::size_t k = i; together && k < last; ++k) {
      if (all[k].bytes != 0) std::memcpy(to, all[k].data, static_cast<std::size_t>(all[k].bytes));
      to += all[k].bytes;
    }
    active.sends.push_back(messages_.send(message.get(), size, peer, kMessageTag));
    active.messages.push_back(std::move(message));
    for (std::size_t k = i; !together && k < last; ++k) {
      for (std::int64_t at = 0; at < all[k].bytes; at += kPieceBytes) {
        active.sends.push_back(messages_.send(
            all[k].data + at, std::min(kPieceBytes, all[k].bytes - at), peer, header.tag));
      }
    }
    i = last;
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
                    std::to_string(active.place.number) + " of the mesh: this process (" +
                    std::to_string(peers_.self()) + ") runs " + active.exchange->label.text() +
                    ", and " + peers_.text(from) + " runs " + header.label.text() +
                    (wanted ? "" : ", of which nothing is expected here") +
                    ". Every process of a mesh has to run the same collectives in the same "
                    "order, on blocks of the same type: look for what differs between processes "
                    "before that (a branch on process_index(), a loop of another length, data "
                    "of another shape, two threads that communicate)",
                true);
  }
  source->heard = true;
  --active.awaited;
  const std::byte* data = message.data.get() + sizeof(Header);
  for (std::size_t i = source->first; i < source->last; ++i) {
    const Parcel& parcel = active.exchange->receives[i];
    if (header.tag == 0) {
      if (parcel.bytes != 0) std::memcpy(parcel.data, data, static_cast<std::size_t>(parcel.bytes));
      data += parcel.bytes;
      continue;
    }
    for (std::int64_t at = 0; at < parcel.bytes; at += kPieceBytes) {
      active.receives.push_back(messages_.receive(
          parcel.data + at, std::min(kPieceBytes, parcel.bytes - at), from, header.tag));
    }
  }
}

void Exchanges::match_or_keep(int from, Message message) {
  const Header& header = message.header();
  const Place place{header.space, header.number, header.round};
  if (const auto active = by_place_.find(place); active != by_place_.end())
    return accept(*active->second, from, message);
  const History& history = history_[header.space];
  if (const auto done = history.done.find({header.number, header.round});
      done != history.done.end()) {
    return fail("the processes are out of step at collective number " +
                    std::to_string(header.number) + " of the mesh: this process (" +
                    std::to_string(peers_.self()) + ") has run " + done->second.text() +
                    ", which takes nothing from " + peers_.text(from) + ", and that runs " +
                    header.label.text() +
                    ". Every process of a mesh has to run the same collectives in the same order",
                true);
  }
  early_[{place, from}] = std::move(message);
}

bool Exchanges::take_messages() {
  bool any = false;
  for (;;) {
    Inbox& box = inbox_[next_inbox_];
    MessagePassing::Arrival arrival{};
    if (box.request == nullptr || !messages_.test(box.request, &arrival)) return any;
    any = true;
    Message message;
    message.bytes = arrival.bytes;
    message.data =
        std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(arrival.bytes));
    std::memcpy(message.data.get(), box.data.get(), static_cast<std::size_t>(arrival.bytes));
    box.request =
        messages_.receive(box.data.get(), static_cast<std::int64_t>(sizeof(Header)) + kInline,
                          MessagePassing::kAnyone, kMessageTag);
    next_inbox_ = (next_inbox_ + 1) % inbox_.size();
    handle(arrival.from, std::move(message));
  }
}

void Exchanges::handle(int from, Message message) {
  const Header& header = message.header();
  const auto text = [&] {
    return std::string(reinterpret_cast<const char*>(message.data.get() + sizeof(Header)),
                       header.text_bytes);
  };
  switch (header.kind) {
    case Kind::exchange:
      if (fault_.empty()) match_or_keep(from, std::move(message));
      return;
    case Kind::leave: {
      left_[static_cast<std::size_t>(from)] = 1;
      for (const auto& active : active_) {
        for (const Active::Source& source : active->sources) {
          if (source.peer == from && !source.heard && fault_.empty()) {
            fail(peers_.text(from) +
                     " has left the job: its program has ended, with the exit code 0, while "
                     "others wait for it in a collective",
                 true);
          }
        }
      }
      return;
    }
    case Kind::fault:
      return fail(text(), false);
    case Kind::ask:
      return answer(from, header);
    case Kind::answer:
      if (const auto active = by_place_.find({header.space, header.number, header.round});
          active != by_place_.end()) {
        for (Active::Source& source : active->second->sources)
          if (source.peer == from) source.answer = text();
      }
      return;
  }
}

// True where something happened.
bool Exchanges::progress(std::vector<Ended>& ended) {
  bool any = take_messages();
  for (std::size_t i = 0; i < active_.size() && fault_.empty();) {
    Active& active = *active_[i];
    const std::size_t before = active.sends.size() + active.receives.size();
    for (auto* list : {&active.sends, &active.receives}) {
      std::erase_if(*list, [&](MessagePassing::Request& request) {
        return request == nullptr || messages_.test(request, nullptr);
      });
    }
    any = any || active.sends.size() + active.receives.size() != before;
    const std::size_t count = active_.size();
    conclude(active, ended);
    if (active_.size() == count) ++i;
  }
  std::erase_if(outgoing_, [&](Outgoing& out) {
    return out.request == nullptr || messages_.test(out.request, nullptr);
  });
  return any;
}

void Exchanges::conclude(Active& active, std::vector<Ended>& ended) {
  std::erase_if(active.sends, [&](MessagePassing::Request& request) {
    return request == nullptr || messages_.test(request, nullptr);
  });
  if (active.awaited != 0 || !active.sends.empty() || !active.receives.empty()) return;
  History& history = history_[active.place.space];
  history.done[{active.place.number, active.place.round}] = active.exchange->label;
  if (history.done.size() > kRemembered) history.done.erase(history.done.begin());
  ended.push_back({active.end, nullptr});
  by_place_.erase(active.place);
  const auto it = std::ranges::find_if(active_, [&](const auto& a) { return a.get() == &active; });
  std::swap(*it, active_.back());
  active_.pop_back();
  active_count_.fetch_sub(1, std::memory_order_relaxed);
}

void Exchanges::tell(std::vector<Ended>& ended) noexcept {
  for (Ended& e : ended) e.end->exchanged(std::move(e.error));
  ended.clear();
}

void Exchanges::poke() noexcept {
  if (active_count_.load(std::memory_order_relaxed) == 0) return;
  std::vector<Ended> ended;
  {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || stopped_) return;
    try {
      progress(ended);
      if (!fault_.empty()) end_all(ended);
    } catch (const std::exception& e) {
      fail(e.what(), true);
      end_all(ended);
    }
  }
  tell(ended);
}

// ------------------------------------------------------------------------------------- the thread

void Exchanges::thread_main() noexcept {
  Clock::time_point looked = Clock::now(), moved = looked;
  while (!stop_.load()) {
    std::vector<Ended> ended;
    bool any = false;
    bool idle = false;
    {
      std::lock_guard lock(mutex_);
      if (stopped_) return;
      try {
        any = progress(ended);
        if (const Clock::time_point now = Clock::now(); now - looked > milliseconds(10)) {
          looked = now;
          look_at_clocks();
          look_at_peers();
        }
        if (!fault_.empty()) end_all(ended);
      } catch (const std::exception& e) {
        fail(e.what(), true);
        end_all(ended);
      }
      idle = active_.empty();
    }
    tell(ended);
    const Clock::time_point now = Clock::now();
    if (any) moved = now;
    // What comes next comes soon, mostly: so it looks a while before it sleeps, a little longer
    // each time.
    const auto quiet = now - moved;
    if (quiet < microseconds(idle ? 20 : 200)) {
      sched_yield();
    } else if (idle) {
      asleep_.store(true);
      if (active_count_.load() == 0) {
        peers_.wait(wake_, 10'000);
        std::uint64_t count = 0;
        [[maybe_unused]] const auto n = read(wake_, &count, sizeof count);
      }
      asleep_.store(false);
      if (active_count_.load() != 0) moved = Clock::now();
    } else {
      peers_.wait(wake_, quiet < milliseconds(2) ? 20 : quiet < milliseconds(50) ? 100 : 500);
    }
  }
}

void Exchanges::stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (Inbox& box : inbox_)
      if (box.request != nullptr) messages_.cancel(box.request);
  }
  stop_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = write(wake_, &one, sizeof one);
  if (thread_.joinable()) {
    if (thread_.get_id() == std::this_thread::get_id())
      thread_.detach();
    else
      thread_.join();
  }
}

}  // namespace shmap
