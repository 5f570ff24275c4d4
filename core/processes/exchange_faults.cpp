// Failures between processes: which process is late or dead, how all processes learn of it, and how
// a process leaves.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "core/base/wait_clock.h"
#include "core/base/warning.h"
#include "core/processes/active_exchange.h"
#include "core/processes/exchanges.h"
#include "core/processes/warn_aside.h"
#include "shmap/error.h"

namespace shmap {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kTextBytes = 4000;
constexpr auto kAnswerTime = milliseconds(500);
// After a failure: how long sends may go on that perhaps nobody receives, and receives, before the
// process ends because their memory cannot be given back.
constexpr auto kSendsEnd = milliseconds(1000), kReceivesEnd = milliseconds(10'000);

}  // namespace

void Exchanges::send_text(int to, Kind kind, const Header& about, const std::string& text) {
  Header header = about;
  header.kind = kind;
  header.text_bytes = static_cast<std::uint32_t>(std::min(text.size(), kTextBytes));
  const std::span<const std::byte> body(reinterpret_cast<const std::byte*>(text.data()),
                                        header.text_bytes);
  if (link_ != nullptr && link_->reaches(to)) return post(to, header, body);
  outgoing_.send(messages_, to, Message::kTag, header.as_bytes(), body);
}

bool Exchanges::flush(Clock::duration at_most) {
  const Clock::time_point until = Clock::now() + at_most;
  for (;;) {
    outgoing_.drop_sent(messages_);
    letters_.send(link_);
    if (outgoing_.empty() && letters_.empty()) return true;
    if (Clock::now() > until) return false;
    sched_yield();
  }
}

void Exchanges::fail(const std::string& text, bool tell) {
  if (!fault_.empty()) return;
  fault_ = text;
  if (link_ != nullptr) link_->mark_failed();
  // Warned at once: the launcher may end this process before the error reaches a caller.
  warn_aside(text + (tell ? "" : " (as another process found)"));
  if (!tell) return;
  for (int p = 0; p < peers_.size(); ++p) {
    if (p == peers_.self()) continue;
    try {
      send_text(p, Kind::fault, Header(), text);
    } catch (const CollectiveError&) {
      continue;  // probably the dead process
    }
  }
}

std::exception_ptr Exchanges::error_for(const ExchangeLabel& label, std::uint64_t number) const {
  return std::make_exception_ptr(CollectiveError(
      (fault_.empty() ? std::string("the job has ended: MPI was finalized") : fault_) +
      "\n  in the collective number " + std::to_string(number) + " of the mesh, " + label.text()));
}

void Exchanges::tell_of_fault(FaultListener& listener) noexcept {
  std::lock_guard lock(mutex_);
  listener.next_ = std::exchange(untold_, &listener);
}

std::string Exchanges::fault() {
  std::lock_guard lock(mutex_);
  return fault_;
}

void Exchanges::report(const std::string& text) noexcept {
  try {
    EndedExchanges ended;
    {
      std::lock_guard lock(mutex_);
      if (stopped_) return;
      fail(text, true);
      end_all(ended);
    }
    ended.tell();
  } catch (...) {
    return;  // no memory for the message: the others see it when this process ends
  }
}

void Exchanges::skip(const ProcessExchange& exchange, const std::string& why) noexcept {
  try {
    std::set<int> partners;
    for (const auto* parcels : {&exchange.sends, &exchange.receives})
      for (const Parcel& parcel : *parcels) partners.insert(parcel.peer);
    skip_place({exchange.space, exchange.number, exchange.round}, std::move(partners),
               Kind::skipped,
               peers_.text(peers_.self()) + " takes no part in collective number " +
                   std::to_string(exchange.number) + " of the mesh, " + exchange.label.text() +
                   ", since what it would send could not be computed there: " + why);
  } catch (...) {
    return;  // no memory, or a process is gone: the others see this process as late
  }
}

void Exchanges::leave_out(std::uint64_t space, std::uint64_t number, std::span<const int> others,
                          const std::string& why) noexcept {
  try {
    skip_place({space, number, 0}, {others.begin(), others.end()}, Kind::left_out,
               peers_.text(peers_.self()) +
                   " ran out of memory in a call whose first collectives it had run, and other "
                   "processes did not: it is out of step with them from collective number " +
                   std::to_string(number) +
                   " of the mesh on, since a second try of the call runs those collectives again. "
                   "Start the job again, and let a process need less memory: " +
                   why);
  } catch (const std::exception& e) {
    report("a process has no memory left to say that it leaves out a collective: " +
           std::string(e.what()));
  }
}

// In place of an exchange of this process. Throws where the partners cannot be told.
void Exchanges::skip_place(const Place& place, std::set<int> partners, Kind kind,
                           const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || !fault_.empty()) return;
    Header header;
    header.space = place.space;
    header.number = place.number;
    header.round = place.round;
    for (const int partner : partners) send_text(partner, kind, header, text);
    early_.erase(early_.lower_bound({place, -1}),
                 early_.upper_bound({place, std::numeric_limits<int>::max()}));
    skipped_.add_own(place, std::move(partners));
    if (letters_.empty() && outgoing_.empty()) return;
  }
  needs_looks_.store(true, std::memory_order_seq_cst);
  wake_thread(Rest::sleep);
}

void Exchanges::take_skip(int from, const Header& header, std::string why) {
  const Place place{header.space, header.number, header.round};
  if (active_.find(place) != nullptr) return fail(why, true);
  // A process that only sent to that one, and has done so, needs nothing of it.
  const ExchangeHistory* const history = histories_.find(place.space);
  if (header.kind == Kind::left_out) {
    // Each process of the mesh leaves the number out, or is out of step with the sender.
    const bool passed =
        history != nullptr && history->has_begun() && history->latest() >= place.number;
    if (passed && !skipped_.is_own(place)) return fail(why, true);
  } else if (history != nullptr && history->find_done(place.number, place.round) != nullptr) {
    return;
  }
  skipped_.add(place, from, std::move(why));
}

// Ends all exchanges, once nobody reads or writes their memory any more.
void Exchanges::end_all(EndedExchanges& ended) {
  if (failed_ == Clock::time_point{}) {
    flush(milliseconds(100));
    failed_ = Clock::now();
  }
  copies_.clear();
  // To the memory of the others a thread still writes, which then ends them itself.
  for (auto& active : active_.take_idle()) {
    for (MessagePassing::Request& request : active->receives)
      if (request != nullptr) messages_.cancel(request);
    unfinished_.push_back(std::move(active));
  }
  end_those_at_rest(ended);
}

// A receive that has begun cannot be cancelled, and ends when its sender has sent the rest. A send
// ends when its receiver has taken it, and never where the receiver refuses the exchange.
void Exchanges::end_those_at_rest(EndedExchanges& ended) {
  const auto since = Clock::now() - failed_;
  std::erase_if(unfinished_, [&](const std::unique_ptr<Active>& active) {
    try {
      active->drop_ended(messages_);
    } catch (const CollectiveError&) {  // a request that fails has ended
      active->receives.clear();
      active->sends.clear();
    }
    if (!active->receives.empty() || (!active->sends.empty() && since < kSendsEnd)) return false;
    ended.push(active->end, error_for(active->exchange->label, active->place.number));
    // Messages of this exchange that may still be in transit keep their memory.
    for (auto& message : active->messages) abandoned_.push_back(std::move(message));
    return true;
  });
  if (unfinished_.empty() || since < kReceivesEnd || under_debugger()) return;
  const Active& active = *unfinished_.front();
  warn_aside(fmt::format(
      "process {} ends: {:.1f} s after the failure another process has still not sent all of what "
      "it has begun to send into the memory of this one, in collective number {} of the mesh, {}",
      peers_.self(), std::chrono::duration<double>(since).count(), active.place.number,
      active.exchange->label.text()));
  _exit(1);
}

// A sender that has failed may use memory again that MPI still read there. It had told this process
// of the failure before that.
bool Exchanges::senders_are_well(const Active& active) {
  take_messages();
  for (const Active::Source& source : active.sources) {
    if (fault_.empty() && link_ != nullptr && link_->reaches(source.peer) &&
        link_->has_failed(source.peer))
      fail(peers_.text(source.peer) + " has given up", true);
  }
  return fault_.empty();
}

// Fails because the collective is the same on both sides, but the program around it differs.
void Exchanges::fail_of_programs(const Active& active, int from, const Header& header) {
  const ProcessExchange& mine = *active.exchange;
  const auto program = [](std::uint64_t hash, std::uint32_t equations) {
    return hash == 0 ? std::string("outside of jit")
                     : fmt::format("in a program of {} equations under jit", equations);
  };
  const std::string where =
      fmt::format("in the collective number {} of the mesh, {}", mine.number, mine.label.text());
  if (header.program == mine.program) {
    return fail(
        fmt::format("the processes run the same program with other captured values, {}: arrays "
                    "that the function captures differ between {} and {}. Make them "
                    "of the same host data in all processes, or pass what differs as a sharded "
                    "argument",
                    where, peers_.text(peers_.self()), peers_.text(from)),
        true);
  }
  fail(fmt::format("the processes run different programs, {}: {} runs it {}, and {} "
                   "runs it {}. The function was traced otherwise there: look for a branch on "
                   "process_index(), and for host values that are not the same (files, clocks, "
                   "random numbers) and became constants; make_jaxpr of the function, printed by "
                   "both processes, shows where they differ",
                   where, peers_.text(peers_.self()), program(mine.program, mine.equations),
                   peers_.text(from), program(header.program, header.equations)),
       true);
}

// ------------------------------------------------------------------------------------- deadlines

void Exchanges::answer(int to, const Header& question) {
  const ExchangeHistory* const history = histories_.find(question.space);
  std::string text = "has run no collective of this mesh yet";
  if (history != nullptr && history->has_begun()) {
    text = fmt::format(
        "has not come so far: its last collective of this mesh was number {}, {}, "
        "{:.1f} s ago",
        history->latest(), history->label().text(),
        std::chrono::duration<double>(Clock::now() - history->when()).count());
  }
  for (const auto& active : active_) {
    if (active->place.space == question.space) continue;
    text += fmt::format("; it waits in collective number {} of another mesh, {}",
                        active->place.number, active->exchange->label.text());
    break;
  }
  send_text(to, Kind::answer, question, text);
}

void Exchanges::ask_late(Active& active) {
  active.asked = Clock::now();
  Header question;
  question.space = active.place.space;
  question.number = active.place.number;
  question.round = active.place.round;
  for (Active::Source& source : active.sources) {
    source.answer.clear();
    if (!source.heard) send_text(source.peer, Kind::ask, question, "");
  }
}

std::string Exchanges::table(const Active& active) const {
  std::string text;
  for (const Active::Source& source : active.sources) {
    text += "\n  " + peers_.text(source.peer) + " ";
    if (source.heard) {
      text += "is here";
    } else if (!source.answer.empty()) {
      text += source.answer;
    } else {
      text += "has not come, and does not answer" + peers_.state_text(source.peer);
    }
  }
  if (active.sources.empty() || active.awaited == 0) text += "\n  what is sent is not taken";
  return text;
}

// The object's thread has not looked for so long: the process was stopped (kMostBetweenLooks).
void Exchanges::do_not_count(Clock::duration time) {
  for (const auto& active : active_) {
    active->begun += time;
    if (active->asked != Clock::time_point{}) active->asked += time;
  }
  if (failed_ != Clock::time_point{}) failed_ += time;
}

void Exchanges::look_at_clocks() {
  const Clock::time_point now = Clock::now();
  for (const auto& a : active_) {
    Active& active = *a;
    const double sec = std::chrono::duration<double>(now - active.begun).count();
    const bool late = warn_sec_ > 0 && sec > warn_sec_ && !active.warned;
    const bool over = timeout_sec_ > 0 && sec > timeout_sec_;
    // Processes that are late are asked where they are, and get a moment to answer.
    const double answer_sec = std::chrono::duration<double>(kAnswerTime).count();
    const bool ask_again = timeout_sec_ > 0 && sec > timeout_sec_ - answer_sec &&
                           std::chrono::duration<double>(active.asked - active.begun).count() <
                               timeout_sec_ - answer_sec;
    if ((late && active.asked == Clock::time_point{}) || ask_again) {
      ask_late(active);
      continue;
    }
    if (!late && !over) continue;
    const bool answered = std::ranges::all_of(
        active.sources, [](const auto& s) { return s.heard || !s.answer.empty(); });
    if (!answered && now - active.asked < kAnswerTime) continue;
    const std::string what = fmt::format(
        "process {} waits for others in collective number {} of the mesh, {}, since "
        "{:.1f} s:{}",
        peers_.self(), active.place.number, active.exchange->label.text(), sec, table(active));
    if (over && !under_debugger()) {
      const std::string last = record();
      fail(what + "\n  Giving up (SHMAP_COLLECTIVE_TIMEOUT_SEC).", true);
      return warn_aside(last);
    }
    if (late) {
      active.warned = true;
      warn_aside(what + "\n  (SHMAP_COLLECTIVE_WARN_SEC)");
    }
  }
}

void Exchanges::look_at_peers() {
  for (int dead; (dead = peers_.next_dead()) >= 0;) {
    take_messages();  // the process may have said before that it leaves
    if (!left_[static_cast<std::size_t>(dead)]) fail(text_of_death(dead), true);
  }
}

std::string Exchanges::text_of_death(int process) const {
  std::string text = peers_.text(process) + " has died";
  for (const auto& active : active_) {
    const bool waits = std::ranges::any_of(active->sources, [&](const auto& s) {
      return s.peer == process && (!s.heard || s.copies != 0);
    });
    if (!waits) continue;
    text += ": process " + std::to_string(peers_.self()) + " waits for it in collective number " +
            std::to_string(active->place.number) + " of the mesh, " +
            active->exchange->label.text();
    break;
  }
  return text;
}

// ------------------------------------------------------------------------------------- leaving

std::string Exchanges::text_of_leaving(const char* how, double sec) {
  std::lock_guard lock(mutex_);
  std::string text = fmt::format(
      "the program of process {} {}, and it waits for the others since {:.1f} s:", peers_.self(),
      how, sec);
  for (int p = 0; p < peers_.size(); ++p) {
    if (p == peers_.self() || left_[static_cast<std::size_t>(p)]) continue;
    text += "\n  " + peers_.text(p) + " has not ended" + peers_.state_text(p);
  }
  if (!active_.empty()) {
    text += fmt::format("\n  here collective number {} of a mesh, {}, has not ended",
                        active_[0].place.number, active_[0].exchange->label.text());
  }
  return text;
}

bool Exchanges::leave(const char* how) noexcept {
  try {
    WaitClock clock(warn_sec_, timeout_sec_);
    for (;;) {
      EndedExchanges ended;
      bool all = true;
      {
        std::unique_lock lock(mutex_);
        if (stopped_ || !fault_.empty()) {
          if (!fault_.empty()) flush(milliseconds(100));
          return false;
        }
        move_on(lock, ended);
        if (active_.empty() && !std::exchange(leaving_, true)) {
          for (int p = 0; p < peers_.size(); ++p)
            if (p != peers_.self()) send_text(p, Kind::leave, Header(), "");
        }
        for (int p = 0; p < peers_.size(); ++p)
          all = all && (p == peers_.self() || left_[static_cast<std::size_t>(p)]);
        // A message that came just before the last process's leave may have told of a fault.
        all = all && outgoing_.empty() && letters_.empty() && leaving_ && fault_.empty();
      }
      ended.tell();
      if (all) return true;
      switch (clock.look()) {
        case WaitClock::Due::nothing:
          break;
        case WaitClock::Due::warning:
          warn(text_of_leaving(how, clock.seconds()) + "\n  (SHMAP_COLLECTIVE_WARN_SEC)");
          break;
        case WaitClock::Due::failure:
          warn(text_of_leaving(how, clock.seconds()) +
               "\n  Giving up (SHMAP_COLLECTIVE_TIMEOUT_SEC)");
          return false;
      }
      usleep(200);
    }
  } catch (...) {
    return false;
  }
}

void Exchanges::give_up(const std::string& why) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (stopped_ || !fault_.empty()) return;
    const std::string text = peers_.text(peers_.self()) + " " + why;
    fault_ = text;
    if (link_ != nullptr) link_->mark_failed();
    for (int p = 0; p < peers_.size(); ++p)
      if (p != peers_.self()) send_text(p, Kind::fault, Header(), text);
    flush(milliseconds(100));
  } catch (...) {
    return;  // the others see it when this process ends
  }
}

}  // namespace shmap
