#include "core/io/joint_save.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <set>

#include "core/array/local_devices.h"
#include "core/base/hash_text.h"
#include "core/ir/node.h"
#include "core/processes/exchanges.h"
#include "core/processes/process_exchange.h"
#include "core/processes/processes.h"

namespace shmap::io {

namespace {

// The message of a process after a step: the text of its error, or the draft's name.
struct Report {
  char failed = 0;
  char text[1500] = {};

  void set(bool bad, std::string_view t) {
    failed = bad;
    const std::size_t n = std::min(t.size(), sizeof text - 1);
    std::memcpy(text, t.data(), n);
    text[n] = '\0';
  }
  std::span<std::byte> bytes() { return {reinterpret_cast<std::byte*>(this), sizeof *this}; }
};

// Runs a step and returns its exception, which the caller throws later.
template <class F>
std::exception_ptr tried(Report& report, const F& step) {
  try {
    step();
    return nullptr;
  } catch (const std::exception& e) {
    report.set(true, e.what());
    return std::current_exception();
  } catch (...) {
    report.set(true, "an exception of an unknown type");
    return std::current_exception();
  }
}

std::uint64_t take_number(std::uint64_t space) {
  static std::mutex mutex;
  static auto* next = new std::map<std::uint64_t, std::uint64_t>();  // read at exit too
  const std::lock_guard lock(mutex);
  return (*next)[space]++;
}

}  // namespace

bool JointSave::wanted(std::span<const Array> arrays) {
  return std::any_of(arrays.begin(), arrays.end(), [](const Array& x) {
    return node_of(x) != nullptr && spans_processes(*node_of(x));
  });
}

JointSave::JointSave(const char* what, std::span<const Array> arrays, std::uint64_t check,
                     SourceLine source)
    : what_(what), source_(source), check_(check), self_(process_index()) {
  std::set<int> all;
  const detail::MeshImpl* spread = nullptr;  // one of their meshes
  bool takes_part = false;                   // an array was placed on devices of this process
  for (const Array& x : arrays) {
    const Node& node = checked_node(x, what);
    leader_has_whole_.push_back(std::byte{!spans_processes(node)});
    if (node.kind != NodeKind::stored || node.trace != 0) continue;
    const auto& stored = static_cast<const StoredNode&>(node);
    if (stored.mesh->fully_addressable()) {
      takes_part |= stored.committed;
      continue;
    }
    takes_part |= stored.mesh->local_count() != 0;
    spread = stored.mesh;
    for (const Device& d : stored.mesh->devices().values()) all.insert(d.process_index());
  }
  // The others would not know that this process takes part.
  if (spread != nullptr && !takes_part) refuse_mesh_of_others(*spread, what, source);
  all.insert(self_);
  processes_.assign(all.begin(), all.end());
  HashText space;
  space.add("save");
  for (const int p : processes_) space.add(static_cast<std::uint64_t>(p));
  space_ = space.value();
  number_ = take_number(space_);
}

// Whether this process writes an array of which it has all blocks. Where the leader has all blocks
// of its own array, that one is meant; otherwise the array lies in this process alone.
bool JointSave::writes_whole(std::size_t i) const {
  return leads() || leader_has_whole_[i] == std::byte{0};
}

std::int64_t JointSave::bytes(std::size_t i, const Array& x) const {
  const Node& node = checked_node(x, what_);
  if (spans_processes(node)) return own_bytes(x, what_);
  return writes_whole(i) ? node.type.nbytes() : 0;
}

void JointSave::write(std::size_t i, const Array& x, ProgressCount& progress,
                      const WriteBox& box) const {
  if (spans_processes(checked_node(x, what_))) return write_own_blocks(x, what_, progress, box);
  if (writes_whole(i)) write_blocks(x, what_, progress, box);
}

// Exchanges one round of messages: from the leader to the others, or from the others to the leader.
// `others`: the received messages, in the order of the processes.
void JointSave::exchange(std::uint32_t round, bool to_leader, std::span<std::byte> mine,
                         std::span<std::byte> others) {
  ProcessExchange e;
  e.space = space_;
  e.number = number_;
  e.round = round;
  e.check = check_;
  e.label.set(what_, "", "", source_.file, static_cast<std::uint32_t>(source_.line),
              static_cast<std::int64_t>(mine.size()));
  const auto size = static_cast<std::int64_t>(mine.size());
  if (leads()) {
    std::byte* to = others.data();
    for (const int p : processes_) {
      if (p == self_) continue;
      if (to_leader) {
        e.receives.push_back({p, to, size});
        to += size;
      } else {
        e.sends.push_back({p, mine.data(), size});
      }
    }
  } else {
    (to_leader ? e.sends : e.receives).push_back({processes_.front(), mine.data(), size});
  }
  Processes::joined()->exchanges().run(e);
}

void JointSave::run(const Steps& steps, std::span<std::byte> notes) {
  const auto name = [&](int process) { return Processes::joined()->peers().text(process); };
  const std::string leader = name(processes_.front());
  std::exception_ptr error;
  Report report;
  if (leads()) error = tried(report, [&] { report.set(false, steps.begin()); });
  std::vector<std::byte> begun(sizeof report + leader_has_whole_.size());
  std::memcpy(begun.data(), &report, sizeof report);
  std::ranges::copy(leader_has_whole_, begun.begin() + sizeof report);
  exchange(0, /*to_leader=*/false, begun, {});
  std::memcpy(&report, begun.data(), sizeof report);
  leader_has_whole_.assign(begun.begin() + sizeof report, begun.end());
  if (error) std::rethrow_exception(error);
  if (report.failed) throw Error(leader + " could not begin the file: " + report.text);

  const std::string draft = report.text;
  report.set(false, "");
  error = tried(report, [&] { steps.write(draft); });
  std::vector<std::byte> mine(sizeof report + notes.size());
  std::memcpy(mine.data(), &report, sizeof report);
  if (!notes.empty()) std::memcpy(mine.data() + sizeof report, notes.data(), notes.size());
  std::vector<std::byte> all(leads() ? mine.size() * (processes_.size() - 1) : 0);
  exchange(1, /*to_leader=*/true, mine, all);
  if (leads()) {
    std::string failure = error ? leader + ": " + report.text : "";
    for (std::size_t k = 1; k < processes_.size(); ++k) {
      const std::byte* const from = all.data() + (k - 1) * mine.size();
      Report other;
      std::memcpy(&other, from, sizeof other);
      if (other.failed && failure.empty()) failure = name(processes_[k]) + ": " + other.text;
      for (std::size_t i = 0; i < notes.size(); ++i) notes[i] |= from[sizeof other + i];
    }
    report.set(!failure.empty(), failure);
    if (failure.empty()) error = tried(report, steps.commit);
    if (failure.empty() && report.failed) report.set(true, leader + ": " + report.text);
  }
  exchange(2, /*to_leader=*/false, report.bytes(), {});
  if (error) std::rethrow_exception(error);
  if (report.failed)
    throw Error("the file was not written, because of " + std::string(report.text));
}

}  // namespace shmap::io
