#include "core/processes/warn_aside.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "core/base/signals_blocked.h"
#include "core/base/warning.h"

namespace shmap {
namespace {

constexpr std::chrono::milliseconds kMoment{200};
constexpr int kMostWaitMs = 1000;

std::atomic<int> unwritten{0};

struct Warning {
  explicit Warning(const std::string& t) : text(t) {}
  const std::string text;
  std::mutex mutex;
  std::condition_variable changed;
  bool written = false;
};

}  // namespace

void warn_aside(const std::string& text) noexcept {
  std::shared_ptr<Warning> warning;
  try {
    warning = std::make_shared<Warning>(text);
    unwritten.fetch_add(1);
    const SignalsBlocked blocked;
    std::thread([warning] {
      warn(warning->text);
      unwritten.fetch_sub(1);
      const std::lock_guard lock(warning->mutex);
      warning->written = true;
      warning->changed.notify_one();
    }).detach();
  } catch (const std::exception&) {  // no memory, or no thread could be started
    if (warning != nullptr) unwritten.fetch_sub(1);
    return warn(text);
  }
  std::unique_lock lock(warning->mutex);
  warning->changed.wait_for(lock, kMoment, [&] { return warning->written; });
}

void wait_for_warnings() noexcept {
  for (int ms = 0; ms < kMostWaitMs && unwritten.load() != 0; ++ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace shmap
