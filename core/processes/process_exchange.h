// ProcessExchange: what one process sends and receives in an exchange, and ExchangeEnd, which
// learns of the exchange's end.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "core/processes/exchange_label.h"

namespace shmap {

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

class ExchangeEnd {
 public:
  // Called once, on any thread, with null or a CollectiveError. The parcels' memory may be reused
  // from then on.
  virtual void exchanged(std::exception_ptr error) noexcept = 0;

 protected:
  ~ExchangeEnd() = default;
};

}  // namespace shmap
