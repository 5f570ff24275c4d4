// MessagePassing: how bytes get from process to process. The library behind it (OpenMPI) is opened
// only where a launcher started several processes.
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

  // A collective of all processes, which waits for them: at start. all[p] = what process p gave.
  virtual void all_gather(const void* mine, std::size_t bytes, void* all) = 0;

  // What has been begun and not ended; null: ended. Messages from one process to another under one
  // tag arrive in order. The memory is the request's until it ended. Each throws CollectiveError
  // where the library reports a failure.
  using Request = void*;
  static constexpr int kAnyone = -1;
  virtual Request send(const void* data, std::int64_t bytes, int to, int tag) = 0;
  virtual Request receive(void* data, std::int64_t bytes, int from, int tag) = 0;
  struct Arrival {
    int from;
    std::int64_t bytes;
  };
  // True where it has ended, which then makes it null; `arrival`, where given, is of a receive.
  virtual bool test(Request& request, Arrival* arrival) = 0;
  virtual void cancel(Request& request) noexcept = 0;  // of a receive

  // Called when somebody else ends the library's use while the process goes on (the program's own
  // MPI_Finalize): no call above comes after it returns.
  virtual void call_at_finalize(void (*run)() noexcept) = 0;
  // Ends the library's use, a collective of all processes, where it was begun here.
  virtual void finalize() noexcept = 0;
};

// One that this build has: opens its library and joins the job. Throws DeviceError, with a remedy,
// where that cannot be.
using MessagePassingFactory = std::unique_ptr<MessagePassing> (*)(const Job& job);
// Those of this build; the list is made by CMake.
std::span<const MessagePassingFactory> built_in_message_passing();

}  // namespace shmap
