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
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/processes/active_exchanges.h"
#include "core/processes/attempt_patience.h"
#include "core/processes/ended_exchanges.h"
#include "core/processes/exchange_history.h"
#include "core/processes/exchange_label.h"
#include "core/processes/exchange_message.h"
#include "core/processes/exchange_place.h"
#include "core/processes/fault_listener.h"
#include "core/processes/inboxes.h"
#include "core/processes/letter_queue.h"
#include "core/processes/mesh_reports.h"
#include "core/processes/message_passing.h"
#include "core/processes/node_link.h"
#include "core/processes/outgoing_texts.h"
#include "core/processes/peers.h"
#include "core/processes/process_exchange.h"
#include "core/processes/same_value.h"
#include "core/processes/skipped_exchanges.h"
#include "core/processes/value_reports.h"
#include "core/processes/visible_calls.h"
#include "core/processes/while_waiting.h"

namespace shmap {

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

  // In place of start(): this process cannot take part, since what it would send could not be
  // computed, for the reason `why`. The partners that run the exchange would wait for it: to them
  // this is a failure of the job. Where all leave it out, having failed alike, nothing happens.
  void skip(const ProcessExchange& exchange, const std::string& why) noexcept;

  // This process leaves out the number of a collective, since its memory ran out in a call of the
  // program that had run collectives; `why` is the error. others: the other processes of the mesh.
  // Those that leave out the same number go on in step. To the others this is a failure of the job,
  // at their collective of that number or of a later one.
  void leave_out(std::uint64_t space, std::uint64_t number, std::span<const int> others,
                 const std::string& why) noexcept;

  // Calls start(), and blocks until the exchange has ended; rethrows its error.
  void run(const ProcessExchange& exchange);
  // Handles messages that have come, unless another thread does so. Returns whether the caller
  // should look again, given what is under way.
  detail::LookAgain poke() noexcept;
  // True if exchanges are under way that wait for nothing but room for their messages, as of the
  // last look. Any thread.
  bool awaits_room() const noexcept { return awaits_room_.load(std::memory_order_relaxed); }
  // True if exchanges are under way. Any thread.
  bool any_under_way() const noexcept { return active_.count(std::memory_order_relaxed) != 0; }
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
  // Reports to `first`, the mesh's process of the lowest rank, that this process makes a mesh, or
  // begins its first collective on one that it has made: what MeshReports finds is a failure of the
  // job. Neither waits nor throws. Any thread.
  enum class MeshUse : std::int32_t { made, begun };
  void report_mesh(const ReportedMesh& mesh, MeshUse use, int first) noexcept;
  // Writes a warning with the collectives that are under way and those that ended last; `why` is
  // its first line. If a process of this node has died, and nobody has named it yet, writes that
  // instead. Writes nothing after a failure, since the failure wrote this list already. Not blocked
  // by a call of MPI that does not return.
  void write_record(const char* why) noexcept;
  // Makes the first failure reach `listener`: at once if it has occurred already. Called once for
  // each listener, before the first exchange that the listener's waits depend on.
  void tell_of_fault(FaultListener& listener) noexcept;

  // Tells the other processes that this process leaves, and waits until all processes leave. True
  // where all did and nothing has failed. Nothing is exchanged after this call. how: what the
  // process does, for warnings.
  bool leave(const char* how = "has ended") noexcept;
  // Tells the other processes that this process is about to end, and why; does not wait for them.
  void give_up(const std::string& why) noexcept;
  // Stops all message passing before it returns. Idempotent.
  void stop() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  // A clock that may be some milliseconds late, but takes a fraction of the time of Clock::now().
  static Clock::time_point coarse_now() noexcept;
  using Place = ExchangePlace;
  using Message = ExchangeMessage;
  using Header = ExchangeMessage::Header;
  using Kind = ExchangeMessage::Kind;
  using Active = ActiveExchange;
  using Bytes = std::vector<std::byte>;
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

  // All of these require mutex_.
  void begin(Active& active, EndedExchanges& ended, Attempt* attempt);
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
  bool offer_core(std::unique_lock<std::mutex>& lock, Clock::time_point until);
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
  void match_or_keep(int from, const Message& message);
  // Which messages of the link a thread takes. what_is_needed: until no exchange waits for other
  // processes and the next message belongs to an exchange that this process has not reached. That
  // message stays in its ring, since taking it there later costs less than keeping a copy of it.
  enum class Take : std::uint8_t { all, what_is_needed };
  bool take_messages(Take take = Take::all);
  bool take_from_link(Take take = Take::all);
  bool is_early(const Header& header) const noexcept;
  bool waits_for_others() const noexcept;
  bool awaits_messages() const noexcept;
  bool progress(EndedExchanges& ended, Take take);
  bool move_on(std::unique_lock<std::mutex>& lock, EndedExchanges& ended,
               Take take = Take::all) noexcept;
  void conclude(Active& active, EndedExchanges& ended);
  void handle(int from, const Message& message);
  // Copies what peers lend, without holding the mutex during the copy; returns whether it copied.
  bool copy_some(std::unique_lock<std::mutex>& lock, EndedExchanges& ended);
  void answer(int to, const Header& question);
  void send_text(int to, Kind kind, const Header& about, const std::string& text);
  void fail(const std::string& text, bool tell);
  void end_all(EndedExchanges& ended);
  void end_those_at_rest(EndedExchanges& ended);
  bool senders_are_well(const Active& active);
  void take_value(int from, const Header& header, std::string what);
  void take_mesh(int from, const Header& header, std::string what);
  void skip_place(const Place& place, std::set<int> partners, Kind kind, const std::string& text);
  void take_skip(int from, const Header& header, std::string why);
  void note_mesh(int process, const ReportedMesh& mesh, MeshUse use);
  void look_at_clocks();
  void do_not_count(Clock::duration time);
  void look_at_peers();
  std::string text_of_death(int process) const;
  std::string unnamed_death();
  void ask_late(Active& active);
  std::string table(const Active& active) const;
  std::string record() const;
  std::string text_of_leaving(const char* how, double sec);  // locks mutex_ itself
  bool flush(Clock::duration at_most);
  std::exception_ptr error_for(const ExchangeLabel& label, std::uint64_t number) const;

  // States of the object's own thread. It naps while other threads look for messages, or have just
  // looked; only those threads wake it then. A sleep is ended by any message that the thread must
  // handle. The end of a nap interrupts the thread that runs on the same core, while the other
  // process waits for that thread. So naps are long, unless exchanges have gone on lately while no
  // thread looked, or were too large for an attempt.
  enum class Rest : int { none, nap, long_nap, sleep };

  void thread_main() noexcept;
  bool left_to_others() noexcept;
  void want_bell_again() noexcept;
  Rest next_nap() noexcept;
  void shorten_naps() noexcept;
  bool rest(Rest how) noexcept;
  bool linger(Clock::time_point until) noexcept;
  void wake_thread(Rest from) noexcept;

  VisibleCalls messages_;
  Peers& peers_;
  NodeLink* const link_;
  const bool listens_;  // for messages that come through MPI
  const double warn_sec_, timeout_sec_;

  std::mutex mutex_;
  Inboxes inboxes_;
  ActiveExchanges active_;
  std::map<std::pair<Place, int>, Bytes> early_;  // messages that came before this process reached
                                                  // the exchange; by sender
  ExchangeHistories histories_;                   // attempts keep pointers to those of spaces
  ValueReports values_;
  MeshReports meshes_;
  SkippedExchanges skipped_;
  LetterQueue letters_;  // of other kinds, and answers that something was taken
  std::deque<Copy> copies_;
  OutgoingTexts outgoing_;  // messages of other kinds
  // After a failure: exchanges into whose memory messages still come, or whose memory is still
  // being sent; and messages that may be on their way.
  std::vector<std::unique_ptr<Active>> unfinished_;
  std::vector<std::unique_ptr<std::byte[]>> abandoned_;
  Clock::time_point failed_{};
  std::vector<std::int32_t> next_tag_;  // by peer
  std::vector<char> left_;              // by peer: the peer has said that it
                                        // leaves
  bool any_left_ = false;
  bool leaving_ = false;
  AttemptPatience patience_;
  std::string fault_;                // the first failure; "" where there is none
  FaultListener* untold_ = nullptr;  // a list of the listeners that do not know the fault
  bool stopped_ = false;

  // True if progress needs a thread that looks. Otherwise the only possible progress is a message
  // through the link.
  std::atomic<bool> needs_looks_{true};
  std::atomic<bool> awaits_room_{false};
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
