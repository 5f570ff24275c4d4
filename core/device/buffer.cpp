#include "core/device/buffer.h"

#include <algorithm>
#include <utility>

#include "core/device/memory_space.h"

namespace shmap {

void Buffer::add_use(Event use) {
  if (use.known_done() && !use.failed()) return;
  // A task may name a buffer more than once.
  if (n_uses_ > 0 && uses().back().record() == use.record()) return;
  // A buffer often has many readers, which finish in order: finished ones are dropped only when
  // room is needed.
  if (more_uses_.empty()) {
    if (n_uses_ == kFewUses) {
      std::uint32_t kept = 0;
      for (std::uint32_t i = 0; i < kFewUses; ++i) {
        if (!few_uses_[i].known_done()) std::swap(few_uses_[kept++], few_uses_[i]);
      }
      for (std::uint32_t i = kept; i < kFewUses; ++i) few_uses_[i] = Event();
      n_uses_ = kept;
    }
    if (n_uses_ < kFewUses) {
      few_uses_[n_uses_++] = std::move(use);
      return;
    }
    more_uses_.reserve(4 * kFewUses);
    for (Event& e : few_uses_) more_uses_.push_back(std::exchange(e, Event()));
  } else if (more_uses_.size() == more_uses_.capacity()) {
    std::erase_if(more_uses_, [](const Event& e) { return e.known_done(); });
    // The next look at all uses comes after as many new ones as are left now, at least.
    if (more_uses_.size() > more_uses_.capacity() / 2)
      more_uses_.reserve(2 * more_uses_.capacity());
  }
  more_uses_.push_back(std::move(use));
  n_uses_ = static_cast<std::uint32_t>(more_uses_.size());
}

void Buffer::retire_definition() {
  if (!def_.known_done()) add_use(def_);
  def_ = Event();
}

void Buffer::clear_uses() noexcept {
  if (n_uses_ == 0) return;
  for (Event& e : few_uses_) e = Event();
  more_uses_.clear();
  n_uses_ = 0;
}

bool Buffer::all_done() const noexcept {
  return def_.done() && std::ranges::all_of(uses(), &Event::done);
}

bool Buffer::all_known_done() const noexcept {
  return def_.known_done() && std::ranges::all_of(uses(), &Event::known_done);
}

bool Buffer::holds_failure() const noexcept {
  const auto failed = [](const Event& e) {
    return e.record() != nullptr && e.record()->state() == Completion::failed;
  };
  return failed(def_) || std::ranges::any_of(uses(), failed);
}

void Buffer::dispose() noexcept { space_->give_back(this); }

void BufferChain::give_back() noexcept { head_->space_->give_back_done(head_, last_); }

}  // namespace shmap
