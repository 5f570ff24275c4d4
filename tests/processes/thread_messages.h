// Message passing between threads that each act as a process, with the order of messages that MPI
// has.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/processes/message_passing.h"

namespace shmap {

// What the threads have in common.
class ThreadMail {
 public:
  explicit ThreadMail(int size)
      : size_(size), boxes_(static_cast<std::size_t>(size)), gathers_(boxes_.size()) {}

  // From now on a message with another tag than this is not written to its receiver's memory before
  // go_on(), as large messages are under way for a while.
  void hold_all_but(int tag) {
    const std::lock_guard lock(mutex_);
    passing_tag_ = tag;
  }
  void go_on() {
    const std::lock_guard lock(mutex_);
    passing_tag_ = -1;
    for (auto& [letter, receive] : held_) deliver(letter, *receive);
    held_.clear();
  }
  // While `are` is true, a send of any thread does not return.
  void stall_sends(bool are) {
    const std::lock_guard lock(mutex_);
    stalled_ = are;
    unstalled_.notify_all();
  }
  // Waits until a send stalls.
  void wait_for_stall() {
    std::unique_lock lock(mutex_);
    unstalled_.wait(lock, [&] { return in_stall_ != 0; });
  }

 private:
  friend class ThreadMessages;
  struct Letter {
    int from, tag;
    std::vector<std::byte> bytes;
  };
  struct Receive {
    std::byte* to;
    std::int64_t room;
    int from, tag;
    bool begun = false, ended = false;
    MessagePassing::Arrival arrival{};
  };
  struct Box {
    std::list<Letter> letters;       // for which there is no receive yet
    std::list<Receive*> receives{};  // for which there is no letter yet
  };
  static bool fit(const Letter& letter, const Receive& receive) {
    return letter.tag == receive.tag &&
           (receive.from == MessagePassing::kAnyone || receive.from == letter.from);
  }
  void begin(Letter letter, Receive& receive) {
    receive.begun = true;
    if (passing_tag_ < 0 || letter.tag == passing_tag_)
      deliver(letter, receive);
    else
      held_.emplace_back(std::move(letter), &receive);
  }
  static void deliver(const Letter& letter, Receive& receive) {
    const std::size_t bytes = std::min(letter.bytes.size(), static_cast<std::size_t>(receive.room));
    if (bytes != 0) std::memcpy(receive.to, letter.bytes.data(), bytes);
    receive.arrival = {letter.from, static_cast<std::int64_t>(bytes)};
    receive.ended = true;
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable gathered_;
  std::vector<Box> boxes_;                       // by receiver
  std::vector<std::vector<std::byte>> gathers_;  // of the current all_gather, by rank
  int here_ = 0, gone_ = 0;
  int passing_tag_ = -1;
  bool stalled_ = false;
  int in_stall_ = 0;
  std::condition_variable unstalled_;
  std::vector<std::pair<Letter, Receive*>> held_;
};

class ThreadMessages final : public MessagePassing {
 public:
  ThreadMessages(ThreadMail& mail, int rank) : mail_(mail), rank_(rank) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return mail_.size_; }
  std::string version() const override { return "threads"; }

  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    const auto* from = static_cast<const std::byte*>(mine);
    std::unique_lock lock(mail_.mutex_);
    mail_.gathered_.wait(lock, [&] { return mail_.gone_ == 0; });  // the one before is over
    mail_.gathers_[static_cast<std::size_t>(rank_)].assign(from, from + bytes);
    ++mail_.here_;
    mail_.gathered_.notify_all();
    mail_.gathered_.wait(lock, [&] { return mail_.here_ == mail_.size_; });
    auto* to = static_cast<std::byte*>(all);
    for (const auto& part : mail_.gathers_) to = std::copy(part.begin(), part.end(), to);
    if (++mail_.gone_ == mail_.size_) mail_.here_ = mail_.gone_ = 0;
    mail_.gathered_.notify_all();
    mail_.gathered_.wait(lock, [&] { return mail_.gone_ == 0; });
  }

  Request send(const void* data, std::int64_t bytes, int to, int tag) override {
    const auto* from = static_cast<const std::byte*>(data);
    ThreadMail::Letter letter{rank_, tag, {from, from + bytes}};
    std::unique_lock lock(mail_.mutex_);
    ++mail_.in_stall_;
    if (mail_.stalled_) mail_.unstalled_.notify_all();
    mail_.unstalled_.wait(lock, [&] { return !mail_.stalled_; });
    --mail_.in_stall_;
    ThreadMail::Box& box = mail_.boxes_[static_cast<std::size_t>(to)];
    const auto it = std::ranges::find_if(
        box.receives, [&](const auto* receive) { return ThreadMail::fit(letter, *receive); });
    if (it == box.receives.end()) {
      box.letters.push_back(std::move(letter));
    } else {
      mail_.begin(std::move(letter), **it);
      box.receives.erase(it);
    }
    return nullptr;
  }

  Request receive(void* data, std::int64_t bytes, int from, int tag) override {
    auto receive = std::make_unique<ThreadMail::Receive>(
        ThreadMail::Receive{static_cast<std::byte*>(data), bytes, from, tag});
    const std::lock_guard lock(mail_.mutex_);
    ThreadMail::Box& box = mail_.boxes_[static_cast<std::size_t>(rank_)];
    const auto it = std::ranges::find_if(
        box.letters, [&](const auto& letter) { return ThreadMail::fit(letter, *receive); });
    if (it == box.letters.end()) {
      box.receives.push_back(receive.get());
    } else {
      mail_.begin(std::move(*it), *receive);
      box.letters.erase(it);
    }
    return receive.release();
  }

  bool test(Request& request, Arrival* arrival) override {
    auto* receive = static_cast<ThreadMail::Receive*>(request);
    const std::lock_guard lock(mail_.mutex_);
    if (!receive->ended) return false;
    if (arrival != nullptr) *arrival = receive->arrival;
    delete receive;
    request = nullptr;
    return true;
  }

  void cancel(Request& request) noexcept override {
    auto* receive = static_cast<ThreadMail::Receive*>(request);
    const std::lock_guard lock(mail_.mutex_);
    if (receive->begun && !receive->ended) return;
    mail_.boxes_[static_cast<std::size_t>(rank_)].receives.remove(receive);
    delete receive;
    request = nullptr;
  }

  void call_at_finalize(void (*)() noexcept) override {}
  Ending finalize_ending() const noexcept override { return Ending::unknown; }
  void finalize() noexcept override {}

 private:
  ThreadMail& mail_;
  const int rank_;
};

}  // namespace shmap
