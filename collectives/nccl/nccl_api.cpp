#include "collectives/nccl/nccl_api.h"

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "core/base/env.h"
#include "core/base/wait_clock.h"
#include "core/base/warning.h"
#include "core/processes/processes.h"
#include "core/processes/while_waiting.h"
#include "cuda/libraries/late_library.h"
#include "shmap/error.h"

namespace shmap::nccl {

namespace {

constexpr int kOldest = 22200;

Api open() {
  static constexpr const char* kNames[] = {"libnccl.so.2", "libnccl.so"};
  static constexpr cuda::LateLibraryInfo kInfo = {"NCCL", kNames, env::Var::nccl_path,
                                                  "ncclGetVersion", "libnccl2"};
  const cuda::LateLibrary library(kInfo);
  decltype(&ncclGetVersion) get_version;
  library.load("ncclGetVersion", get_version);
  Api a{};
  if (get_version(&a.version) != ncclSuccess || a.version < kOldest)
    library.throw_version(version_text(a.version), version_text(kOldest));
#define SHMAP_FUNCTION(name, function) library.load(#function, a.name);
  SHMAP_NCCL_FUNCTIONS(SHMAP_FUNCTION)
#undef SHMAP_FUNCTION
  return a;
}

struct Opened {
  bool there = false;
  Api api{};
  std::string why;
  Opened() {
    try {
      api = open();
      there = true;
    } catch (const Error& e) {
      why = e.what();
    }
  }
};

// Held while NCCL is called with communicators that another thread may abort.
struct Calls {
  std::mutex mutex;
  bool aborted = false;
  std::string why;
};
Calls& calls() {
  static auto& all = *new Calls;
  return all;
}

[[noreturn]] void throw_aborted() {
  throw CollectiveError("these GPUs can communicate no more in this process: " + calls().why);
}

const Opened& opened() {
  static const auto& once = *new Opened;  // never destroyed, since static objects may communicate
                                          // at exit
  return once;
}

}  // namespace

const Api* find(std::string* why) {
  const Opened& o = opened();
  if (o.there) return &o.api;
  if (why != nullptr) *why = o.why;
  return nullptr;
}

const Api& api() { return opened().api; }

std::string version_text(int version) {
  // Up to 2.8 the number has the form 2804.
  const int number = version < 10000 ? version / 1000 * 10000 + version % 1000 : version;
  return cuda::version_text(static_cast<std::size_t>(number));
}

void check(ncclResult_t result, const char* what, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* more = api().last_error(comm);
  throw CollectiveError(std::string(what) + ": " + api().error_string(result) +
                        (more != nullptr && *more != '\0' ? std::string(" (") + more + ")" : ""));
}

void settle(std::span<const ncclComm_t> comms, const char* what) {
  WaitClock clock(env::seconds(env::Var::collective_warn_sec),
                  env::seconds(env::Var::collective_timeout_sec));
  for (const ncclComm_t comm : comms) {
    for (int turns = 0;; ++turns) {
      {
        std::lock_guard lock(calls().mutex);
        if (calls().aborted) throw_aborted();
        ncclResult_t state = ncclSuccess;
        check(api().async_error(comm, &state), "ncclCommGetAsyncError", comm);
        if (state == ncclSuccess) break;
        check(state, what, comm);
      }
      const auto text = [&](const char* variable) {
        return std::string(what) + ": NCCL has not completed it in " +
               std::to_string(clock.seconds()) + " s (" + variable +
               "). NCCL_DEBUG=INFO shows how far each process has come";
      };
      switch (clock.look()) {
        case WaitClock::Due::nothing:
          break;
        case WaitClock::Due::warning:
          warn(text("SHMAP_COLLECTIVE_WARN_SEC"));
          break;
        case WaitClock::Due::failure:
          throw CollectiveError(text("SHMAP_COLLECTIVE_TIMEOUT_SEC"));
      }
      detail::look_around();
      if (turns < 200)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

void abort(std::vector<ncclComm_t> comms, const std::string& why) noexcept {
  try {
    std::lock_guard lock(calls().mutex);
    if (!std::exchange(calls().aborted, true)) calls().why = why;
    if (comms.empty()) return;
    std::thread([comms = std::move(comms)] {
      for (const ncclComm_t comm : comms) api().abort(comm);
    }).detach();
  } catch (...) {
    return;  // the process's end frees them
  }
}

Group::Group() : calls_(calls().mutex) {
  if (calls().aborted) throw_aborted();
  check(api().group_start(), "ncclGroupStart");
}

void Group::end(std::span<const ncclComm_t> comms) {
  open_ = false;
  const ncclResult_t result = api().group_end();
  calls_.unlock();
  check(result, "ncclGroupEnd");
  if (result == ncclInProgress) settle(comms, "ncclGroupEnd");
}

}  // namespace shmap::nccl
