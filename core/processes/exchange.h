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
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/processes/message_passing.h"
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
  // 0 seconds: never. Both outlive it.
  Exchanges(MessagePassing& messages, Peers& peers, double warn_sec, double timeout_sec);
  ~Exchanges() = delete;  // it lives as long as the process

  // Any thread; neither waits nor throws. `exchange` lives until its end.
  void start(const ProcessExchange& exchange, ExchangeEnd& end) noexcept;
  // start(), and waits for the end; rethrows its error.
  void run(const ProcessExchange& exchange);
  // Looks whether something has come; nothing where another thread does so.
  void poke() noexcept;

  // Tells the others that this process leaves, and waits until all do: true where all did, and
  // nothing has failed. Nothing is exchanged after that.
  bool leave() noexcept;
  // Tells the others that this process is about to end, and why: no waiting for them.
  void give_up(const std::string& why) noexcept;
  // No message passing after it returns. Idempotent.
  void stop() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    std::uint64_t space, number;
    std::uint32_t round;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  enum class Kind : std::uint32_t { exchange, leave, fault, ask, answer };
  struct Header {
    Kind kind = Kind::exchange;
    std::uint32_t round = 0;
    std::uint64_t space = 0, number = 0, check = 0;
    std::int64_t bytes = 0;        // of the parcels in all
    std::int32_t tag = 0;          // under which they come; 0: behind this header
    std::uint32_t text_bytes = 0;  // behind this header, of the other kinds
    ExchangeLabel label;
  };
  struct Message {
    std::unique_ptr<std::byte[]> data;
    std::int64_t bytes = 0;
    const Header& header() const { return *reinterpret_cast<const Header*>(data.get()); }
  };
  struct Active;
  struct Ended {
    ExchangeEnd* end;
    std::exception_ptr error;
  };
  // What was done last, for answers and for telling what is late from what is wrong.
  struct History {
    std::map<std::pair<std::uint64_t, std::uint32_t>, ExchangeLabel> done;  // number, round
    std::uint64_t latest = 0;
    ExchangeLabel label;
    Clock::time_point when;
  };

  // All hold mutex_.
  void begin(Active& active, std::vector<Ended>& ended);
  void send_parts(Active& active);
  void accept(Active& active, int from, const Message& message);
  void match_or_keep(int from, Message message);
  bool take_messages();
  bool progress(std::vector<Ended>& ended);
  void conclude(Active& active, std::vector<Ended>& ended);
  void handle(int from, Message message);
  void answer(int to, const Header& question);
  void send_text(int to, Kind kind, const Header& about, const std::string& text);
  void fail(const std::string& text, bool tell);
  void end_all(std::vector<Ended>& ended);
  void look_at_clocks();
  void look_at_peers();
  void ask_late(Active& active);
  std::string table(const Active& active) const;
  bool flush(Clock::duration at_most);
  std::exception_ptr error_for(const ExchangeLabel& label, std::uint64_t number) const;

  void thread_main() noexcept;
  void tell(std::vector<Ended>& ended) noexcept;

  MessagePassing& messages_;
  Peers& peers_;
  const double warn_sec_, timeout_sec_;

  std::mutex mutex_;
  struct Inbox {
    std::unique_ptr<std::byte[]> data;
    MessagePassing::Request request;
  };
  std::vector<Inbox> inbox_;  // receives that are open, in the order in which they are filled
  std::size_t next_inbox_ = 0;
  std::vector<std::unique_ptr<Active>> active_;
  std::map<Place, Active*> by_place_;
  std::map<std::pair<Place, int>, Message> early_;  // came before this process got there; by sender
  std::unordered_map<std::uint64_t, History> history_;
  struct Outgoing {
    std::unique_ptr<std::byte[]> data;
    MessagePassing::Request request;
  };
  std::vector<Outgoing> outgoing_;                       // messages of the other kinds
  std::vector<std::unique_ptr<std::byte[]>> abandoned_;  // after a failure
  std::vector<std::int32_t> next_tag_;                   // by peer
  std::vector<char> left_;                               // by peer: it has said so
  bool leaving_ = false;
  std::string fault_;  // the first failure; "" where there is none
  bool stopped_ = false;

  std::atomic<int> active_count_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stop_{false};
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace shmap
