#include "core/processes/peers.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

#include "core/base/hash_text.h"

namespace shmap {
namespace {

std::uint64_t running_system() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return HashText().add(text).value();
}

// The state in /proc/<pid>/stat: R, S, T …; 0 where it cannot be read.
char state_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(") ");
  return end == text.npos || end + 2 >= text.size() ? '\0' : text[end + 2];
}

}  // namespace

PeerCard PeerCard::of_this_process() {
  PeerCard card;
  gethostname(card.host, sizeof card.host - 1);
  card.boot = running_system();
  struct stat space;
  if (stat("/proc/self/ns/pid", &space) == 0) card.pid_space = space.st_ino;
  card.pid = getpid();
  if (sched_getaffinity(0, sizeof card.cores, &card.cores) != 0) CPU_ZERO(&card.cores);
  return card;
}

Peers::Peers(int self, std::vector<PeerCard> cards) : self_(self), cards_(std::move(cards)) {
  node_size_ = 0;
  for (int p = 0; p < size(); ++p) {
    if (!on_this_node(p)) continue;
    if (p == self) node_rank_ = node_size_;
    ++node_size_;
    if (p == self) continue;
    const int fd =
        static_cast<int>(syscall(SYS_pidfd_open, cards_[static_cast<std::size_t>(p)].pid, 0));
    watched_.push_back({p, fd, fd < 0 && errno == ESRCH});
    if (watched_.back().dead) watched_.back().dead = false;  // to be reported by the first look
  }
  crowded_ = is_crowded();
}

bool Peers::is_crowded() const noexcept {
  cpu_set_t mine = cards_[static_cast<std::size_t>(self_)].cores, all = mine;
  if (CPU_COUNT(&mine) == 0) return node_size_ > 1;
  int sharing = 0;
  for (int p = 0; p < size(); ++p) {
    if (!on_this_node(p)) continue;
    cpu_set_t theirs = cards_[static_cast<std::size_t>(p)].cores, common;
    CPU_AND(&common, &mine, &theirs);
    if (CPU_COUNT(&common) == 0) continue;
    ++sharing;
    CPU_OR(&all, &all, &theirs);
  }
  return sharing > CPU_COUNT(&all);
}

Peers::~Peers() {
  for (const Watched& w : watched_)
    if (w.fd >= 0) close(w.fd);
}

bool Peers::on_this_node(int process) const noexcept {
  const PeerCard &a = cards_[static_cast<std::size_t>(process)],
                 &b = cards_[static_cast<std::size_t>(self_)];
  return a.boot == b.boot && a.pid_space == b.pid_space && std::strcmp(a.host, b.host) == 0;
}

int Peers::node_of(int process) const noexcept {
  const PeerCard& card = cards_[static_cast<std::size_t>(process)];
  int first = 0;
  while (cards_[static_cast<std::size_t>(first)].boot != card.boot ||
         std::strcmp(cards_[static_cast<std::size_t>(first)].host, card.host) != 0)
    ++first;
  return first;
}

std::string Peers::text(int process) const {
  const PeerCard& card = cards_[static_cast<std::size_t>(process)];
  return "process " + std::to_string(process) + " (pid " + std::to_string(card.pid) + " on " +
         card.host + ")";
}

std::string Peers::state_text(int process) const {
  if (!on_this_node(process)) return "";
  const char state = state_of(cards_[static_cast<std::size_t>(process)].pid);
  return state == 'T' || state == 't' ? ", which a signal has stopped" : "";
}

bool Peers::wait(int wake, int other, int timeout_us) noexcept {
  constexpr std::size_t kMost = 512;
  pollfd fds[kMost];
  std::size_t n = 0;
  fds[n++] = {wake, POLLIN, 0};
  fds[n++] = {other, POLLIN, 0};  // poll() ignores it where it is -1
  for (const Watched& w : watched_)
    if (w.fd >= 0 && !w.dead && n < kMost) fds[n++] = {w.fd, POLLIN, 0};
  const timespec timeout{timeout_us / 1'000'000, timeout_us % 1'000'000 * 1000};
  if (ppoll(fds, n, &timeout, nullptr) <= 0) return false;
  return std::any_of(fds + 2, fds + n, [](const pollfd& fd) { return fd.revents != 0; });
}

bool Peers::has_ended(const Watched& watched) const noexcept {
  if (watched.fd >= 0) {
    pollfd fd{watched.fd, POLLIN, 0};
    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLIN) != 0;
  }
  return kill(cards_[static_cast<std::size_t>(watched.process)].pid, 0) != 0 && errno == ESRCH;
}

int Peers::next_dead() noexcept {
  for (Watched& w : watched_) {
    if (w.dead || !has_ended(w)) continue;
    w.dead = true;
    return w.process;
  }
  return -1;
}

bool Peers::is_gone(int process) const noexcept {
  return std::any_of(watched_.begin(), watched_.end(),
                     [&](const Watched& w) { return w.process == process && has_ended(w); });
}

}  // namespace shmap
