// MessagePassing whose calls another thread can see to be under way. Private to Exchanges.
#pragma once
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/processes/message_passing.h"

namespace shmap {

// A call may take long although it is not to block: MPI_Test of OpenMPI 4.1.4, which finds that a
// process of another node has died, waits until mpirun has printed a message, and mpirun prints
// none while it ends the job. The caller holds a mutex meanwhile. One call at a time.
class VisibleCalls final : public MessagePassing {
 public:
  explicit VisibleCalls(MessagePassing& messages) noexcept : messages_(messages) {}

  // If a call is under way, runs `read`, before the end of which the call does not return: `read`
  // may read what the mutex of the call's thread protects. Returns whether it ran. One thread at a
  // time.
  template <typename F>
  bool during_call(F read) {
    struct Reading {
      explicit Reading(std::atomic<bool>& flag) noexcept : flag_(flag) { flag_.store(true); }
      ~Reading() { flag_.store(false); }
      std::atomic<bool>& flag_;
    } const reading(is_read_);
    if (!under_way_.load()) return false;
    read();
    return true;
  }

  int rank() const noexcept override { return messages_.rank(); }
  int size() const noexcept override { return messages_.size(); }
  std::string version() const override { return messages_.version(); }
  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    const Call call(*this);
    messages_.all_gather(mine, bytes, all);
  }
  Request send(const void* data, std::int64_t bytes, int to, int tag) override {
    const Call call(*this);
    return messages_.send(data, bytes, to, tag);
  }
  Request receive(void* data, std::int64_t bytes, int from, int tag) override {
    const Call call(*this);
    return messages_.receive(data, bytes, from, tag);
  }
  bool test(Request& request, Arrival* arrival) override {
    const Call call(*this);
    return messages_.test(request, arrival);
  }
  void cancel(Request& request) noexcept override {
    const Call call(*this);
    messages_.cancel(request);
  }
  void call_at_finalize(void (*run)() noexcept) override { messages_.call_at_finalize(run); }
  Ending finalize_ending() const noexcept override { return messages_.finalize_ending(); }
  void finalize() noexcept override { messages_.finalize(); }

 private:
  class Call {
   public:
    explicit Call(VisibleCalls& calls) noexcept : calls_(calls) { calls_.under_way_.store(true); }
    // Either this thread sees that another reads, or that thread sees that the call has ended.
    ~Call() {
      calls_.under_way_.store(false);
      while (calls_.is_read_.load()) sched_yield();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    VisibleCalls& calls_;
  };

  MessagePassing& messages_;
  std::atomic<bool> under_way_{false}, is_read_{false};
};

}  // namespace shmap
