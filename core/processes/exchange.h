// Exchanges: what the processes of a job send each other in a collective, and how each process
// detects that another one does something else, is late, stopped or dead.
//
// An exchange has a place, which is the same in all processes that take part: a space (of a mesh),
// a number in it, which counts collectives in the order of the program, and a round of the
// collective. Exchanges may be started in any order and by any thread. Each message says what its
// sender does: nothing is written to a receiver's memory before that agrees with what the receiver
// does.
//
// After the first failure the processes may be out of step, so nothing is exchanged any more:
// exchanges under way and later ones fail with the same error.
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

#include "core/processes/message_passing.h"
#include "core/processes/node_link.h"
#include "core/processes/peers.h"
#include "core/processes/while_waiting.h"

namespace shmap {

// A description of what a process does, for the error of a process that does something else.
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

// Work that an exchange does itself on its received parcels, when all have come. A parcel is read
// in the memory of its sender where possible, otherwise in a copy.
class ParcelWork {
 public:
  virtual ~ParcelWork() = default;
  virtual int parts() const noexcept = 0;  // at least 1
  // parcels: the address of each receive. Called by any thread, for several parts at once. An
  // exception is a failure of the job, since the senders wait for the end of the work.
  virtual void run(int part, const std::byte* const* parcels) const = 0;
};

// A copy between blocks of this process.
struct OwnCopy {
  std::byte* to;
  const std::byte* from;
  std::int64_t bytes;
};

// What one process sends and receives in an exchange.
struct ProcessExchange {
  std::uint64_t space = 0, number = 0;
  std::uint32_t round = 0;
  std::uint64_t check = 0;  // a hash of everything that must be the same in all processes
  // The program that the collective belongs to: two hashes, and the number of its equations. All
  // are 0 if there is no program.
  std::uint64_t program = 0, constants = 0;
  std::uint32_t equations = 0;
  ExchangeLabel label;
  // Ordered by peer; the parcels of one peer in the order in which they are sent, with the same
  // sizes on both sides.
  std::vector<Parcel> sends, receives;
  // The work on the receives, or null. Receives of an exchange with work may have no memory of
  // their own (data is null).
  std::shared_ptr<const ParcelWork> work;
  // Copies inside this process, which are made after its messages have been sent.
  std::vector<OwnCopy> copies;
};

// Notified when an exchange has ended.
class ExchangeEnd {
 public:
  // Called once, on any thread, with null or a CollectiveError. The parcels' memory may be reused
  // from then on.
  virtual void exchanged(std::exception_ptr error) noexcept = 0;

 protected:
  ~ExchangeEnd() = default;
};

// A value that has to be the same in all processes of a mesh.
struct SameValue {
  enum class Role : std::int32_t { program, captured, argument, put };
  Role role;
  std::uint64_t space = 0;  // of the mesh
  std::uint64_t key = 0;    // of the place in the user's program; what is reported for one key is
                            // compared in the order of the reports
  std::uint64_t hash = 0;   // of the value
  std::uint32_t equations = 0;  // of a program
  std::string what;  // for the error: "captured array 0 of type f32[4] of the function at a.cpp:12"
};

// Code that waits for other processes by other means than exchanges.
class FaultListener {
 public:
  // Ends the waits, because the job has failed. Called once, by the thread of Exchanges, which
  // holds no lock.
  virtual void job_failed(const std::string& text) noexcept = 0;

 protected:
  ~FaultListener() = default;

 private:
  friend class Exchanges;
  FaultListener* next_ = nullptr;
};

class Exchanges {
 public:
  // Seconds; 0: never. All arguments must outlive the object; link may be null.
  Exchanges(MessagePassing& messages, Peers& peers, NodeLink* link, double warn_sec,
            double timeout_sec);
  ~Exchanges() = delete;  // the object lives as long as the process

  // A small exchange that one thread performs from beginning to end when it reaches the exchange:
  // the prepared messages, and the state of the exchange.
  class Attempt;
  // Null where the exchange is too large for an attempt, or involves processes of other nodes.
  std::shared_ptr<Attempt> prepare(const ProcessExchange& exchange) const;
  // Sends the messages, and looks for a microsecond or two for those of the other processes. True
  // if all have come, so that the exchange has ended; otherwise start() must continue it. `number`
  // is the exchange's. Any thread, one at a time.
  bool attempt(const ProcessExchange& exchange, Attempt& attempt) noexcept;

  // Neither blocks nor throws. `exchange` must live until its end. `attempt`: an attempt that began
  // the exchange, or null. Any thread.
  void start(const ProcessExchange& exchange, ExchangeEnd& end,
             Attempt* attempt = nullptr) noexcept;
  // True if these processes and this one read each other's shared heaps in place. All processes of
  // a node get the same answer for the same processes.
  bool read_in_place(std::span<const int> processes) const noexcept;

  // Calls start(), and blocks until the exchange has ended; rethrows its error.
  void run(const ProcessExchange& exchange);
  // Handles messages that have come, unless another thread does so. Returns whether the caller
  // should look again, given what is under way.
  detail::LookAgain poke() noexcept;
  // A waiting thread handles messages itself: while a thread calls poke() repeatedly, and for a
  // moment after that, since its next wait follows soon, the thread of this object leaves the
  // messages to it.
  void looking(detail::Looking change) noexcept;

  // The number of exchanges that each kind of thread has ended so far; for tests.
  struct Turns {
    std::int64_t taken_by_thread = 0;  // exchanges that the object's own thread ended
    std::int64_t taken_by_others = 0;  // exchanges that other threads ended, which started them or
                                       // waited
    std::int64_t at_once = 0;          // exchanges among the latter that attempts ended
    std::int64_t wakes = 0;            // wake-ups of the object's own thread by others
    std::int64_t hand_overs = 0;       // from waiting threads to the object's own thread
    std::int64_t sleeps = 0;           // of the object's own thread, with nothing to look for
  };
  Turns turns() const noexcept;

  // The first failure, detected here or reported by another process; "" where there is none.
  std::string fault();
  // Reports a failure outside of exchanges that concerns all processes: handled as a failure
  // detected here.
  void report(const std::string& text) noexcept;
  // Reports this process's hash of a value, which the first of `processes` compares with its own: a
  // difference is a failure of the job, and names both processes. Neither waits nor throws. The
  // processes must report what belongs to one key in one order, so one thread of each does so.
  void report_value(const SameValue& value, std::span<const int> processes) noexcept;
  // Writes a warning with the collectives that are under way and those that ended last; `why` is
  // its first line. Writes nothing after a failure, since the failure wrote this list already.
  void write_record(const char* why) noexcept;
  // Makes the first failure reach `listener`: at once if it has occurred already. Called once for
  // each listener, before the first exchange that the listener's waits depend on.
  void tell_of_fault(FaultListener& listener) noexcept;

  // Tells the other processes that this process leaves, and waits until all processes leave. True
  // where all did and nothing has failed. Nothing is exchanged after this call.
  bool leave() noexcept;
  // Tells the other processes that this process is about to end, and why; does not wait for them.
  void give_up(const std::string& why) noexcept;
  // Stops all message passing before it returns. Idempotent.
  void stop() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  // A clock that may be some milliseconds late, but takes a fraction of the time of Clock::now().
  static Clock::time_point coarse_now() noexcept;
  struct Place {
    std::uint64_t space, number;
    std::uint32_t round;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // on_board: the parcels are on the sender's board, and `front` begins with the number of the
  // entry.
  enum class Kind : std::uint32_t { exchange, taken, leave, fault, ask, answer, on_board, value };
  static constexpr std::size_t kFrontBytes = 32;
  // The members up to and including `front` are the first cache line of a message in memory. Where
  // both sides do the same, only this line is read.
  struct Header {
    Kind kind = Kind::exchange;
    std::uint32_t round = 0;
    std::uint64_t number = 0;
    std::uint64_t digest = 0;  // of the space and of everything that must be the same on both sides
    std::byte front[kFrontBytes] = {};  // the parcels, if they fit

    std::uint64_t space = 0, check = 0, program = 0, constants = 0;
    std::uint32_t equations = 0;
    std::int64_t bytes = 0;        // of all parcels together
    std::int32_t tag = 0;          // of the message with the parcels; 0: they follow this header
    std::uint32_t text_bytes = 0;  // of the text that follows this header, for other kinds
    // The number of parcels that the receiver reads in the sender's memory; 0: none. Their offsets
    // in the sender's shared heap, or their addresses, follow this header. The receiver answers
    // with a message of kind `taken` when it has read them.
    std::uint32_t lent = 0;
    std::uint32_t by_address = 0;
    ExchangeLabel label;

    bool in_front() const noexcept {
      return kind == Kind::exchange && tag == 0 && lent == 0 &&
             bytes <= static_cast<std::int64_t>(kFrontBytes);
    }
  };
  using Bytes = std::vector<std::byte>;
  // How often an attempt looks for messages: 0.5 microseconds without pauses, and 2 with pauses.
  static constexpr int kTurnsAtOnce = 150, kLeastPatience = 40, kMostPatience = 190;
  static constexpr int kLooksAmongMany = 64;  // before a thread offers its core
  static constexpr int kTryAgain = 32;
  static constexpr std::chrono::microseconds kMostYielding{100}, kMostForRoom{5};
  // A header and the bytes that follow it, 8-byte aligned.
  struct Message {
    std::span<const std::byte> bytes;
    const Header& header() const { return *reinterpret_cast<const Header*>(bytes.data()); }
    const std::byte* body() const {
      return header().in_front() ? header().front : bytes.data() + sizeof(Header);
    }
  };
  // A message that waits for room in the ring of a process that the link reaches.
  struct Letter {
    int to;
    Bytes bytes;
  };
  struct Active;
  // One thread's share of copying: of parcels that a peer lends, of the exchange's own copies (peer
  // is kOwn), or of the exchange's work (kWork).
  struct Copy {
    Active* active;
    int peer;
    std::byte* to;
    const std::byte* from;
    std::int64_t bytes;
    bool by_address;  // reads an address of the peer, whose memory is not mapped here
    int part = 0;     // of the work
  };
  static constexpr int kWork = -1, kNobody = -2, kOwn = -3;
  // The exchanges that have ended and whose ExchangeEnd is to be called once the mutex is free.
  // Mostly one, which needs no heap memory.
  class EndedList {
   public:
    void push(ExchangeEnd* end, std::exception_ptr error);
    bool empty() const noexcept { return first_.end == nullptr; }
    void tell() noexcept;  // calls all of them, and empties the list

   private:
    struct Ended {
      ExchangeEnd* end = nullptr;
      std::exception_ptr error;
      void tell() noexcept { end->exchanged(std::move(error)); }
    };
    Ended first_;
    std::vector<Ended> more_;
  };
  // The exchanges that ended last, to answer other processes and to distinguish a late message from
  // a wrong one.
  struct History {
    struct Done {
      std::uint64_t number;
      std::uint32_t round;
      ExchangeLabel label;
      Clock::time_point begun;  // on the clock of coarse_now() where an attempt ended the exchange
      std::uint64_t order;      // position among the exchanges that have ended
    };
    std::vector<Done> done;  // the last kRemembered, as a ring buffer
    std::size_t oldest = 0;
    std::uint64_t latest = 0;
    ExchangeLabel label;
    Clock::time_point when;
  };

  // All of these require mutex_.
  void begin(Active& active, EndedList& ended, Attempt* attempt);
  static Header header_of(const ProcessExchange& exchange);
  static std::uint64_t digest_of(const ProcessExchange& exchange, std::int64_t bytes) noexcept;
  bool has_room(const Attempt& attempt) noexcept;
  bool send_at_once(const ProcessExchange& exchange, Attempt& attempt);
  bool wait_for_room(std::unique_lock<std::mutex>& lock, const Attempt& attempt);
  bool take_at_once(const ProcessExchange& exchange, Attempt& attempt) noexcept;
  bool may_come_soon(const Attempt& attempt) const noexcept;
  bool take_early(const ProcessExchange& exchange, Attempt& attempt);
  bool work_at_once(const ProcessExchange& exchange, Attempt& attempt) noexcept;
  void leave_rings(Attempt& attempt) noexcept;
  bool make_attempt(std::unique_lock<std::mutex>& lock, const ProcessExchange& exchange,
                    Attempt& attempt);
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
  static std::int64_t copy_parcels(std::span<const Parcel> parcels, std::byte* to) noexcept;
  const std::byte* on_board(int from, const Header& header) const noexcept;
  void accept(Active& active, int from, const Message& message);
  void fail_of_programs(const Active& active, int from, const Header& header);
  void borrow(Active& active, int from, std::size_t source, const Message& message);
  static std::byte* place_for(Active& active, std::size_t receive);
  void list_copies(Active& active);
  bool begin_work(Active& active);
  void give_back(Active& active, int peer);
  // Makes one copy, or one part of the work, without the mutex. Returns an error of errno, or 0;
  // sets `thrown` to the text of an exception of the work.
  int run_copy(const Copy& copy, std::string& thrown) const noexcept;
  int failed_lender(const Copy& copy) const noexcept;
  void post(int to, const Header& header, std::span<const std::byte> body);
  // Posts the letters for which there is room; returns whether there were any.
  bool post_letters(std::deque<Letter>& letters);
  void match_or_keep(int from, const Message& message);
  bool take_messages();
  bool take_from_link();
  bool progress(EndedList& ended);
  bool move_on(std::unique_lock<std::mutex>& lock, EndedList& ended) noexcept;
  void conclude(Active& active, EndedList& ended);
  void handle(int from, const Message& message);
  // Copies what peers lend, without holding the mutex during the copy; returns whether it copied.
  bool copy_some(std::unique_lock<std::mutex>& lock, EndedList& ended);
  void answer(int to, const Header& question);
  void send_text(int to, Kind kind, const Header& about, const std::string& text);
  void fail(const std::string& text, bool tell);
  void end_all(EndedList& ended);
  // A report of a value's hash, and those with one key: how many this process has made, its own
  // that others are still to be compared with, by their count, and those of others that came
  // before.
  struct Report {
    std::uint64_t hash = 0;
    std::uint32_t equations = 0;
    std::string what;
    int awaited = 0;  // reports of others
  };
  struct ValueReports {
    std::uint32_t reported = 0;
    std::map<std::uint32_t, Report> mine;
    std::map<std::pair<std::uint32_t, int>, Report> early;  // by count and process
  };
  void take_value(int from, const Header& header, std::string what);
  void compare(ValueReports& reports, std::uint32_t time, int from, SameValue::Role role,
               const Report& theirs);
  void look_at_clocks();
  void look_at_peers();
  void ask_late(Active& active);
  std::string table(const Active& active) const;
  std::string record() const;
  std::string text_of_leaving(double sec);  // locks mutex_ itself
  bool flush(Clock::duration at_most);
  std::exception_ptr error_for(const ExchangeLabel& label, std::uint64_t number) const;

  // States of the object's own thread. It naps while other threads look for messages, or have just
  // looked; only those threads wake it then. A sleep is ended by any message that the thread must
  // handle. The end of a nap interrupts the thread that runs on the same core, while the other
  // process waits for that thread. So naps are long, unless exchanges have gone on lately while no
  // thread looked, or were too large for an attempt.
  enum class Rest : int { none, nap, long_nap, sleep };

  Active*& chain_of(const Place& place) noexcept;
  Active* find(const Place& place) noexcept;
  void forget_place(Active& active) noexcept;
  const History::Done* find_done(const History& history, const Header& header) const noexcept;

  void thread_main() noexcept;
  bool left_to_others() noexcept;
  void want_bell_again() noexcept;
  Rest next_nap() noexcept;
  void shorten_naps() noexcept;
  bool rest(Rest how) noexcept;
  bool linger(Clock::time_point until) noexcept;
  void wake_thread(Rest from) noexcept;

  MessagePassing& messages_;
  Peers& peers_;
  NodeLink* const link_;
  const bool listens_;  // for messages that come through MPI
  const double warn_sec_, timeout_sec_;

  std::mutex mutex_;
  struct Inbox {
    std::unique_ptr<std::byte[]> data;
    MessagePassing::Request request;
  };
  std::vector<Inbox> inbox_;  // open receives, in the order in which they are filled
  std::size_t next_inbox_ = 0;
  std::vector<std::unique_ptr<Active>> active_;
  std::vector<std::unique_ptr<Active>> spare_;    // reused with the capacity of their lists
  Active* by_place_[64] = {};                     // linked lists, by a hash of the place
  std::map<std::pair<Place, int>, Bytes> early_;  // messages that came before this process reached
                                                  // the exchange; by sender
  std::unordered_map<std::uint64_t, History> history_;  // by space; attempts keep pointers into it
  std::uint64_t done_count_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, ValueReports> values_;  // by space and key
  struct Outgoing {
    std::unique_ptr<std::byte[]> data;
    MessagePassing::Request request;
  };
  std::deque<Letter> letters_;  // of other kinds, and answers that something was taken
  std::deque<Copy> copies_;
  std::vector<Outgoing> outgoing_;                       // messages of other kinds
  std::vector<std::unique_ptr<std::byte[]>> abandoned_;  // after a failure
  std::vector<std::int32_t> next_tag_;                   // by peer
  std::vector<char> left_;                               // by peer: the peer has said that it
                                                         // leaves
  bool any_left_ = false;
  bool leaving_ = false;
  int patience_ = kMostPatience;     // turns of looking that an attempt makes
  unsigned impatient_ = 0;           // number of attempts with less patience
  std::string fault_;                // the first failure; "" where there is none
  FaultListener* untold_ = nullptr;  // a list of the listeners that do not know the fault
  bool stopped_ = false;

  std::atomic<int> active_count_{0};
  // True if progress needs a thread that looks. Otherwise the only possible progress is a message
  // through the link.
  std::atomic<bool> needs_looks_{true};
  const bool crowded_;  // the processes that share cores are more than these cores
  std::atomic<Rest> rest_{Rest::none};
  std::atomic<int> lookers_{0};
  std::atomic<bool> looked_{false};  // a thread has looked since the last nap
  std::atomic<int> short_naps_{0};   // how many of the next naps are short
  std::atomic<std::int64_t> taken_by_thread_{0}, taken_by_others_{0}, at_once_{0}, wakes_{0},
      hand_overs_{0}, sleeps_{0};
  std::atomic<bool> stop_{false};
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace shmap
