#include "core/processes/processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "core/base/env.h"
#include "core/base/fault.h"
#include "core/base/warning.h"
#include "core/processes/end_watch.h"
#include "core/processes/exchanges.h"
#include "core/processes/node_link.h"
#include "core/processes/start_watch.h"
#include "core/processes/term_watch.h"
#include "core/processes/warn_aside.h"
#include "shmap/error.h"

namespace shmap {

constinit std::atomic<Processes*> Processes::the_processes{nullptr};

namespace {

// "process 2 (pid 7 on host a) has cpu:4, and process 0 (…) has cpu:2"
[[noreturn]] void refuse(const Peers& peers, int process, const std::string& what,
                         const std::string& theirs, const std::string& first, const char* remedy) {
  throw DeviceError("the processes of the job differ in " + what + ": " + peers.text(process) +
                    " has " + theirs + ", and " + peers.text(0) + " has " + first + ". " + remedy);
}

// The words of two lists that differ from the other list's word at the same place.
std::pair<std::string, std::string> differing(std::string_view a, std::string_view b) {
  std::pair<std::string, std::string> found;
  const auto next = [](std::string_view& text) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    return word;
  };
  while (!a.empty() || !b.empty()) {
    const std::string_view one = next(a), other = next(b);
    if (one == other) continue;
    found.first.append(found.first.empty() ? "" : " ").append(one);
    found.second.append(found.second.empty() ? "" : " ").append(other);
  }
  return found;
}

NodeLink::Carries carries() {
  const std::string text = env::text(env::Var::shared_memory);
  if (text == "0") return NodeLink::Carries::nothing;
  if (text == "messages") return NodeLink::Carries::messages;
  return text == "1" ? NodeLink::Carries::all : NodeLink::Carries::blocks;
}

// The library ends MPI itself, and watches how long that takes.
bool ends_mpi = false;

// The number of this process while it waits for the others to join, else -1.
std::atomic<int> joining_rank{-1};

// Before SIGTERM ends the process. A launcher that ends a job because a process has ended before
// all had joined does not always say so itself.
void say_what_runs() noexcept {
  if (Processes* const joined = Processes::joined())
    return joined->exchanges().write_record("SIGTERM came");
  const int rank = joining_rank.load();
  if (rank < 0) return;
  try {
    warn(
        fmt::format("SIGTERM came while process {} waited for the other processes to start: "
                    "perhaps one of them has ended without using a device",
                    rank));
  } catch (...) {
    return;  // no memory for the message
  }
}

// While it lives, this process waits for the others to join.
class Joining {
 public:
  explicit Joining(int rank) noexcept { joining_rank.store(rank); }
  ~Joining() { joining_rank.store(-1); }
};

}  // namespace

Processes::Processes(std::unique_ptr<MessagePassing> messages)
    : messages_(std::move(messages)), pid_(getpid()) {}

Processes::~Processes() = default;

Processes& Processes::join(const Job& job, StartCard card, void (*finish)() noexcept) {
  const auto factories = built_in_message_passing();
  if (factories.empty()) {
    throw DeviceError(job.text() +
                      ", and this build of the library cannot join processes: it was built "
                      "without OpenMPI (Debian: libopenmpi-dev). Start one process, which drives "
                      "as many devices as SHMAP_DEVICES says; or set SHMAP_ALONE=1 where each "
                      "process is to work for itself.");
  }
  if (!job.has_server) {
    throw DeviceError(job.text() +
                      ", but left no address by which MPI could join them (no PMIX_NAMESPACE, no "
                      "PMI_FD): start them with OpenMPI's mpirun, or with srun --mpi=pmix; or set "
                      "SHMAP_ALONE=1 where each process is to work for itself.");
  }
  fault::point("start", job.rank);
  const double warn_sec = env::seconds(env::Var::collective_warn_sec);
  const double timeout_sec = env::seconds(env::Var::collective_timeout_sec);
  const StartWatch watch(job, warn_sec, timeout_sec);
  const Joining joining(job.rank);
  say_before_term(say_what_runs);
  std::unique_ptr<Processes> made(new Processes(factories.front()(job)));
  made->agree(card);
  made->finish_ = finish;
  made->warn_sec_ = warn_sec;
  made->timeout_sec_ = timeout_sec;
  made->link_ = NodeLink::make(*made->messages_, *made->peers_, carries());
  made->exchanges_ =
      new Exchanges(*made->messages_, *made->peers_, made->link_.get(), warn_sec, timeout_sec);
  // A program that initialised MPI may end it before it ends itself.
  made->messages_->call_at_finalize(leave_with_mpi);
  // Never destroyed. Handlers that are registered here run at exit before those registered earlier.
  Processes* processes = made.release();
  the_processes.store(processes, std::memory_order_release);
  on_exit(leave, nullptr);
  return *processes;
}

void Processes::agree(const StartCard& card) {
  const auto n = static_cast<std::size_t>(size());
  std::vector<StartCard> all(n);
  messages_->all_gather(&card, sizeof card, all.data());
  std::vector<PeerCard> peers;
  for (const StartCard& c : all) peers.push_back(c.peer);
  peers_ = std::make_unique<Peers>(rank(), std::move(peers));
  const StartCard& first = all.front();
  for (int p = 0; p < size(); ++p) {
    const StartCard& c = all[static_cast<std::size_t>(p)];
    if (std::strcmp(c.version, first.version) != 0) {
      refuse(*peers_, p, "the version of this library", c.version, first.version,
             "Start all processes with the same program and the same libraries.");
    }
    if (c.kind != first.kind || c.count != first.count) {
      refuse(*peers_, p, "their devices", c.devices, first.devices,
             "Give all of them the same number and kind in SHMAP_DEVICES (mpirun -x "
             "SHMAP_DEVICES=cpu:2) or in init's Options.");
    }
    if (std::strcmp(c.environment, first.environment) != 0) {
      const auto [theirs, ours] = differing(c.environment, first.environment);
      refuse(*peers_, p, "environment variables", theirs, ours,
             "Give all of them the same (mpirun -x NAME=value).");
    }
  }
}

bool Processes::is_of_a_child() const noexcept { return getpid() != pid_; }

bool Processes::part(const char* how) noexcept {
  if (!parted_) {
    parted_ = true;
    try {
      fault::point("finish", rank());
    } catch (const std::exception& e) {
      exchanges_->give_up(std::string("cannot end: ") + e.what());
      return false;
    }
    // Tasks of collectives may still be queued: this process does not read their results, but other
    // processes do.
    finish_();
    parted_well_ = exchanges_->leave(how);
  }
  return parted_well_;
}

// If the program ends normally, its process waits for the others. If it does not, or the others are
// gone, MPI is left unfinalized: the launcher then ends the job.
void Processes::leave(int exit_code, void*) noexcept {
  Processes* self = joined();
  if (self == nullptr || self->is_of_a_child()) return;
  if (exit_code != 0) {
    self->exchanges_->give_up("ends with the exit code " + std::to_string(exit_code));
    return wait_for_warnings();
  }
  if (!self->part("has ended")) {
    // Another process waits for this one, or is gone: a normal exit code would hide that.
    wait_for_warnings();
    _exit(1);
  }
  self->exchanges_->stop();
  const EndWatch watch(*self->peers_, self->warn_sec_, self->timeout_sec_);
  ends_mpi = true;
  self->messages_->finalize();
}

void Processes::leave_with_mpi() noexcept {
  Processes* self = joined();
  if (self->is_of_a_child() || ends_mpi) return;
  const bool well = self->part("calls MPI_Finalize");
  self->exchanges_->stop();
  const bool seen = self->messages_->finalize_ending() != MessagePassing::Ending::unknown;
  // MPI_Finalize would wait for the processes for which this one has just given up. After a fault
  // they may come all the same, since their programs may have caught the error.
  if (!well && (!seen || self->exchanges_->fault().empty())) _exit(1);
  if (!seen) return;
  // Never destroyed: nothing is called when MPI_Finalize has returned.
  static const EndWatch* const watch = new (std::nothrow)
      EndWatch(*self->peers_, self->warn_sec_, self->timeout_sec_, []() noexcept {
        return joined()->messages_->finalize_ending() == MessagePassing::Ending::over;
      });
  (void)watch;
}

}  // namespace shmap
