// Exchanges: what the processes of a job send each other in a collective, and how they find out
// that one of them does something else, is late, stopped or dead.
//
// An exchange has a place, which is the same in all processes that take part: a space (of a mesh),
// a number in it, which counts collectives in the order of the program, and a round of the
// collective. Exchanges may be started in any order and by any thread. Each message says what its
// sender is doing: nothing is written to a receiver's memory before that agrees with what the
// receiver does.
//
// After the first failure the processes may be out of step, so nothing is exchanged any more: what
// is under way and what comes fails with the same error.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/device/while_waiting.h"
#include "core/processes/message_passing.h"
#include "core/processes/node_link.h"
#include "core/processes/peers.h"

namespace shmap {

// What a process says it does, for whoever finds that another does something else.
struct ExchangeLabel {
  char op[24] = {};
  char axes[24] = {};
  char dtype[8] = {};
  char file[40] = {};
  std::uint32_t line = 0;
  std::int64_t bytes = 0;  // of a device's block
  void set(const char* op, std::string_view axes, std::string_view dtype, const char* file,
           std::uint32_t line, std::int64_t bytes);
  std::string text() const;  // "psum of f32, 4096 bytes a device, over ('i',)\n  at a.cpp:12"
};

struct Parcel {
  int peer;
  std::byte* data;
  std::int64_t bytes;
};

// One process's part.
struct ProcessExchange {
  std::uint64_t space = 0, number = 0;
  std::uint32_t round = 0;
  std::uint64_t check = 0;  // of all that has to be the same in all processes
  // Of the program that the collective is in: hashes, and how many equations it has; 0: of none.
  std::uint64_t program = 0, constants = 0;
  std::uint32_t equations = 0;
  ExchangeLabel label;
  // By peer; those of one peer in the order in which they travel, of the same sizes on both sides.
  std::vector<Parcel> sends, receives;
};

// Who is told that an exchange has ended.
class ExchangeEnd {
 public:
  // Once, on any thread, with null or a CollectiveError. The parcels' memory is free again.
  virtual void exchanged(std::exception_ptr error) noexcept = 0;

 protected:
  ~ExchangeEnd() = default;
};

class Exchanges {
 public:
  // 0 seconds: never. All outlive it; link may be null.
  Exchanges(MessagePassing& messages, Peers& peers, NodeLink* link, double warn_sec,
            double timeout_sec);
  ~Exchanges() = delete;  // it lives as long as the process

  // An exchange of a few bytes as the thread that reaches it may do it from beginning to end, with
  // nothing handed over: what it sends, ready to be sent, and what of it has been done.
  class Attempt;
  // Null where the exchange is not for that: too large, or with processes of other nodes.
  std::shared_ptr<Attempt> prepare(const ProcessExchange& exchange) const;
  // Any thread, one at a time: sends, and looks a microsecond or two for what comes. True: all has
  // come, and the exchange has ended. Else start() goes on with it. `number` is the exchange's.
  bool attempt(const ProcessExchange& exchange, Attempt& attempt) noexcept;

  // Any thread; neither waits nor throws. `exchange` lives until its end. `attempt`: what has been
  // done of it, if anything.
  void start(const ProcessExchange& exchange, ExchangeEnd& end,
             Attempt* attempt = nullptr) noexcept;
  // start(), and waits for the end; rethrows its error.
  void run(const ProcessExchange& exchange);
  // Looks whether something has come, where no other thread does so; the answer is about what is
  // under way.
  detail::LookAgain poke() noexcept;
  // A thread that waits handles what comes itself: while one calls poke() again and again, and for
  // a moment after, since its next wait follows soon, this object's own thread stays out of it.
  void looking(detail::Looking change) noexcept;

  // How messages got from thread to thread so far, for tests.
  struct Turns {
    std::int64_t taken_by_thread = 0;  // exchanges that this object's own thread ended
    std::int64_t taken_by_others = 0;  // and those that others ended: whoever started or waited
    std::int64_t at_once = 0;          // those of the latter that attempts ended
    std::int64_t wakes = 0;            // of the own thread, by other threads
    std::int64_t hand_overs = 0;       // of threads that waited to the own thread
    std::int64_t sleeps = 0;           // of the own thread, with nothing to look for
  };
  Turns turns() const noexcept;

  // The first failure, here or as another process told of it; "" where there is none.
  std::string fault();
  // Something else has failed that all processes depend on: tells them, as of a failure here.
  void report(const std::string& text) noexcept;
  // Writes the collectives that are under way and those that ended last as a warning, headed by
  // `why`; nothing after a failure, which was written already.
  void write_record(const char* why) noexcept;
  // Called once, with the first failure, by the thread that looks at other processes: for what else
  // waits for them. Set before anything is exchanged that it is about.
  void call_at_fault(void (*run)(const std::string& text) noexcept) noexcept {
    at_fault_.store(run, std::memory_order_release);
  }

  // Tells the others that this process leaves, and waits until all do: true where all did, and
  // nothing has failed. Nothing is exchanged after that.
  bool leave() noexcept;
  // Tells the others that this process is about to end, and why: no waiting for them.
  void give_up(const std::string& why) noexcept;
  // No message passing after it returns. Idempotent.
  void stop() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  // Up to some milliseconds ago, in a fraction of the time that Clock::now() takes.
  static Clock::time_point coarse_now() noexcept;
  struct Place {
    std::uint64_t space, number;
    std::uint32_t round;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  enum class Kind : std::uint32_t { exchange, taken, leave, fault, ask, answer };
  static constexpr std::size_t kFrontBytes = 32;
  // The beginning, which is the first cache line of a message in memory, is all that is looked at
  // where both sides do the same.
  struct Header {
    Kind kind = Kind::exchange;
    std::uint32_t round = 0;
    std::uint64_t number = 0;
    std::uint64_t digest = 0;  // of the space and of all that has to be the same on both sides
    std::byte front[kFrontBytes] = {};  // the parcels, where they find room here

    std::uint64_t space = 0, check = 0, program = 0, constants = 0;
    std::uint32_t equations = 0;
    std::int64_t bytes = 0;        // of the parcels in all
    std::int32_t tag = 0;          // under which they come; 0: behind this header
    std::uint32_t text_bytes = 0;  // behind this header, of the other kinds
    // Of parcels that the receiver reads where they lie: how many. Their offsets in the sender's
    // shared heap, or their addresses in its memory, are behind this header; the receiver says when
    // it has them (taken).
    std::uint32_t lent = 0;
    std::uint32_t by_address = 0;
    ExchangeLabel label;

    bool in_front() const noexcept {
      return kind == Kind::exchange && tag == 0 && lent == 0 &&
             bytes <= static_cast<std::int64_t>(kFrontBytes);
    }
  };
  using Bytes = std::vector<std::byte>;
  // Turns of looking: 0.5 microseconds without pauses, and 2 with them.
  static constexpr int kTurnsAtOnce = 150, kLeastPatience = 40, kMostPatience = 190;
  static constexpr int kTryAgain = 32;
  static constexpr std::chrono::microseconds kMostYielding{100};
  // A header and what is behind it, 8-byte aligned.
  struct Message {
    std::span<const std::byte> bytes;
    const Header& header() const { return *reinterpret_cast<const Header*>(bytes.data()); }
    const std::byte* body() const {
      return header().in_front() ? header().front : bytes.data() + sizeof(Header);
    }
  };
  // To a process that the link reaches, waiting for room there.
  struct Letter {
    int to;
    Bytes bytes;
  };
  struct Active;
  // Of what a peer lends: one thread's turn of copying.
  struct Copy {
    Active* active;
    int peer;
    std::byte* to;
    const std::byte* from;
    std::int64_t bytes;
    bool by_address;  // in the peer's memory, where this process's has none of it
  };
  // Who is to be told of an end, once the mutex is free. One at a time mostly, which takes no
  // memory.
  class EndedList {
   public:
    void push(ExchangeEnd* end, std::exception_ptr error);
    bool empty() const noexcept { return first_.end == nullptr; }
    void tell() noexcept;  // all, and forgets them

   private:
    struct Ended {
      ExchangeEnd* end = nullptr;
      std::exception_ptr error;
      void tell() noexcept { end->exchanged(std::move(error)); }
    };
    Ended first_;
    std::vector<Ended> more_;
  };
  // What was done last, for answers and for telling what is late from what is wrong.
  struct History {
    struct Done {
      std::uint64_t number;
      std::uint32_t round;
      ExchangeLabel label;
      Clock::time_point begun;  // as coarse_now() where an attempt ended it
      std::uint64_t order;      // counts those that have ended
    };
    std::vector<Done> done;  // the last kRemembered, as a ring
    std::size_t oldest = 0;
    std::uint64_t latest = 0;
    ExchangeLabel label;
    Clock::time_point when;
  };

  // All hold mutex_.
  void begin(Active& active, EndedList& ended, Attempt* attempt);
  static Header header_of(const ProcessExchange& exchange);
  static std::uint64_t digest_of(const ProcessExchange& exchange, std::int64_t bytes) noexcept;
  bool send_at_once(const ProcessExchange& exchange, Attempt& attempt);
  bool take_at_once(const ProcessExchange& exchange, Attempt& attempt) noexcept;
  bool take_early(const ProcessExchange& exchange, Attempt& attempt);
  int patience() noexcept;
  void learn(bool ended) noexcept;
  bool offer_core(std::unique_lock<std::mutex>& lock, Clock::time_point until);
  static void remember_begun(History& history, const ProcessExchange& exchange,
                             Clock::time_point now);
  void remember_done(History& history, const ProcessExchange& exchange, Clock::time_point begun);
  void send_parts(Active& active);
  void send_to(Active& active, int peer, std::size_t first, std::size_t last);
  enum class Lends : std::uint8_t { nothing, offsets, addresses };
  Lends lends(int peer, std::span<const Parcel> parcels) const;
  void accept(Active& active, int from, const Message& message);
  void fail_of_programs(const Active& active, int from, const Header& header);
  void borrow(Active& active, int from, std::size_t source, const Message& message);
  void post(int to, const Header& header, std::span<const std::byte> body);
  // What there is room for; true where there was something.
  bool post_letters(std::deque<Letter>& letters);
  void match_or_keep(int from, const Message& message);
  bool take_messages();
  bool take_from_link();
  bool progress(EndedList& ended);
  bool move_on(std::unique_lock<std::mutex>& lock, EndedList& ended) noexcept;
  void conclude(Active& active, EndedList& ended);
  void handle(int from, const Message& message);
  // Copies what peers lend, without the mutex meanwhile; true where it did.
  bool copy_some(std::unique_lock<std::mutex>& lock, EndedList& ended);
  void answer(int to, const Header& question);
  void send_text(int to, Kind kind, const Header& about, const std::string& text);
  void fail(const std::string& text, bool tell);
  void end_all(EndedList& ended);
  void look_at_clocks();
  void look_at_peers();
  void ask_late(Active& active);
  std::string table(const Active& active) const;
  std::string record() const;
  std::string text_of_leaving(double sec);  // takes mutex_ itself
  bool flush(Clock::duration at_most);
  std::exception_ptr error_for(const ExchangeLabel& label, std::uint64_t number) const;

  // Of the own thread. It naps while others look, or have just looked, and nobody wakes it then
  // but they; a sleep ends with what it is to handle.
  enum class Rest : int { none, nap, sleep };

  Active*& chain_of(const Place& place) noexcept;
  Active* find(const Place& place) noexcept;
  void forget_place(Active& active) noexcept;
  const History::Done* find_done(const History& history, const Header& header) const noexcept;

  void thread_main() noexcept;
  bool left_to_others() noexcept;
  void want_bell_again() noexcept;
  bool rest(Rest how, int at_most_us) noexcept;
  bool linger(Clock::time_point until) noexcept;
  void wake_thread(Rest from) noexcept;

  MessagePassing& messages_;
  Peers& peers_;
  NodeLink* const link_;
  const bool listens_;  // to messages that come through the library
  const double warn_sec_, timeout_sec_;

  std::mutex mutex_;
  struct Inbox {
    std::unique_ptr<std::byte[]> data;
    MessagePassing::Request request;
  };
  std::vector<Inbox> inbox_;  // receives that are open, in the order in which they are filled
  std::size_t next_inbox_ = 0;
  std::vector<std::unique_ptr<Active>> active_;
  std::vector<std::unique_ptr<Active>> spare_;    // with the room that their lists have grown to
  Active* by_place_[64] = {};                     // chains by a hash of the place
  std::map<std::pair<Place, int>, Bytes> early_;  // came before this process got there; by sender
  std::unordered_map<std::uint64_t, History> history_;  // by space; attempts point into it
  std::uint64_t done_count_ = 0;
  struct Outgoing {
    std::unique_ptr<std::byte[]> data;
    MessagePassing::Request request;
  };
  std::deque<Letter> letters_;  // of the other kinds, and what says that something was taken
  std::deque<Copy> copies_;
  std::vector<Outgoing> outgoing_;                       // messages of the other kinds
  std::vector<std::unique_ptr<std::byte[]>> abandoned_;  // after a failure
  std::vector<std::int32_t> next_tag_;                   // by peer
  std::vector<char> left_;                               // by peer: it has said so
  bool any_left_ = false;
  bool leaving_ = false;
  int patience_ = kMostPatience;  // of attempts: turns of looking
  unsigned impatient_ = 0;        // attempts with less
  std::string fault_;             // the first failure; "" where there is none
  bool fault_told_ = false;       // to at_fault_
  bool stopped_ = false;

  std::atomic<void (*)(const std::string&) noexcept> at_fault_{nullptr};
  std::atomic<int> active_count_{0};
  // Something moves only where somebody looks: else all that can come is a message of the link.
  std::atomic<bool> needs_looks_{true};
  const bool crowded_;  // the processes that share cores are more than these
  std::atomic<Rest> rest_{Rest::none};
  std::atomic<int> lookers_{0};
  std::atomic<bool> looked_{false};  // since its last nap
  std::atomic<std::int64_t> taken_by_thread_{0}, taken_by_others_{0}, at_once_{0}, wakes_{0},
      hand_overs_{0}, sleeps_{0};
  std::atomic<bool> stop_{false};
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace shmap
