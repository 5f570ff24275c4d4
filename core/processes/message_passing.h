// MessagePassing: sends bytes between processes. The library that does so (OpenMPI) is opened only
// where a launcher started several processes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/processes/job.h"

namespace shmap {

class MessagePassing {
 public:
  virtual ~MessagePassing() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual std::string version() const = 0;  // "Open MPI 4.1.4"

  // A collective of all processes, at start; blocks until all have called it. all[p] = the bytes of
  // process p.
  virtual void all_gather(const void* mine, std::size_t bytes, void* all) = 0;

  // A send or receive under way; null: it has ended. Messages from one process to another under one
  // tag arrive in order. The request uses its memory until it has ended. Each function throws
  // CollectiveError where the library reports a failure.
  using Request = void*;
  static constexpr int kAnyone = -1;
  virtual Request send(const void* data, std::int64_t bytes, int to, int tag) = 0;
  virtual Request receive(void* data, std::int64_t bytes, int from, int tag) = 0;
  struct Arrival {
    int from;
    std::int64_t bytes;
  };
  // Whether the request has ended; if so, sets it to null. `arrival`, where given, describes a
  // receive.
  virtual bool test(Request& request, Arrival* arrival) = 0;
  // Of a receive only. Sets the request to null where it has ended; else a message is being
  // received, and the request uses its memory on, until test() finds that it has ended.
  virtual void cancel(Request& request) noexcept = 0;

  // `run` is called when other code ends the use of the library while the process goes on (the
  // program's own MPI_Finalize). No function above may be called after `run` returns.
  virtual void call_at_finalize(void (*run)() noexcept) = 0;
  // How far the other code has come with that: `under_way` until its call returns. `unknown` where
  // the library does not show it. Any thread, after `run` too.
  enum class Ending : std::uint8_t { unknown, under_way, over };
  virtual Ending finalize_ending() const noexcept = 0;
  // Ends the use of the library if this object began it: a collective of all processes.
  virtual void finalize() noexcept = 0;
};

// Opens the library and joins the job. Throws DeviceError, with a remedy, where that fails.
using MessagePassingFactory = std::unique_ptr<MessagePassing> (*)(const Job& job);
// The implementations in this build; CMake writes the list.
std::span<const MessagePassingFactory> built_in_message_passing();

}  // namespace shmap
