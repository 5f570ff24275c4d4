// Values that have to be the same in all processes of a mesh: each process reports a hash of its
// own to the first process of the mesh, which compares them. Nobody waits for a report.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/warning.h"
#include "core/processes/active_exchange.h"
#include "core/processes/exchange.h"

namespace shmap {
namespace {

// A process that calls a line more often than others leaves reports that nothing is compared with.
constexpr std::size_t kMostKept = 64;

std::string text_of_equations(std::uint32_t mine, std::uint32_t theirs) {
  return mine == theirs ? "" : fmt::format(" ({} equations and {})", mine, theirs);
}

}  // namespace

void Exchanges::report_value(const SameValue& value, std::span<const int> processes) noexcept {
  try {
    EndedList ended;
    bool posted = false;
    {
      std::lock_guard lock(mutex_);
      if (stopped_ || leaving_ || !fault_.empty()) return;
      ValueReports& reports = values_[{value.space, value.key}];
      const std::uint32_t time = reports.reported++;
      if (processes.front() == peers_.self()) {
        Report& mine = reports.mine[time];
        mine = {value.hash, value.equations, value.what, static_cast<int>(processes.size()) - 1};
        if (reports.mine.size() > kMostKept) reports.mine.erase(reports.mine.begin());
        for (auto it = reports.early.lower_bound({time, -1});
             it != reports.early.end() && it->first.first == time && fault_.empty();
             it = reports.early.erase(it))
          compare(reports, time, it->first.second, value.role, it->second);
        if (!fault_.empty()) end_all(ended);
      } else {
        Header header;
        header.space = value.space;
        header.number = value.key;
        header.round = time;
        header.check = value.hash;
        header.equations = value.equations;
        header.tag = static_cast<std::int32_t>(value.role);
        send_text(processes.front(), Kind::value, header, value.what);
        posted = !letters_.empty() || !outgoing_.empty();
      }
    }
    ended.tell();
    if (!posted) return;
    needs_looks_.store(true, std::memory_order_seq_cst);
    wake_thread(Rest::sleep);
  } catch (...) {
    return;  // no memory for the report: nothing depends on it
  }
}

void Exchanges::take_value(int from, const Header& header, std::string what) {
  ValueReports& reports = values_[{header.space, header.number}];
  const Report theirs{header.check, header.equations, std::move(what), 0};
  if (reports.mine.contains(header.round))
    return compare(reports, header.round, from, static_cast<SameValue::Role>(header.tag), theirs);
  if (header.round < reports.reported) return;  // it was dropped
  reports.early[{header.round, from}] = theirs;
  if (reports.early.size() > kMostKept * static_cast<std::size_t>(peers_.size()))
    reports.early.erase(reports.early.begin());
}

void Exchanges::compare(ValueReports& reports, std::uint32_t time, int from, SameValue::Role role,
                        const Report& theirs) {
  const auto it = reports.mine.find(time);
  if (it == reports.mine.end()) return;
  const Report& mine = it->second;
  if (mine.hash == theirs.hash) {
    if (--it->second.awaited == 0) reports.mine.erase(it);
    return;
  }
  const char* headline = "";
  const char* remedy = "";
  switch (role) {
    case SameValue::Role::program:
      headline = "the processes run different programs";
      remedy =
          "The function was traced otherwise there: look for a branch on process_index(), and for "
          "host values that are not the same (files, clocks, random numbers) and became constants; "
          "make_jaxpr of the function, printed by both processes, shows where they differ";
      break;
    case SameValue::Role::captured:
      headline = "the processes run the same program with other captured values";
      remedy =
          "Make it of the same host data in all processes, or pass what differs as a sharded "
          "argument";
      break;
    case SameValue::Role::argument:
      headline = "the processes give other values of an argument that all devices have alike";
      remedy =
          "Give it the same value in all processes, or a spec that splits it over the mesh, with "
          "make_array_from_callback for what each process has of its own";
      break;
    case SameValue::Role::put:
      headline = "the processes place other data where all devices have it alike";
      remedy =
          "Make it of the same host data in all processes (one file, one seed), or give a spec "
          "that splits it over the mesh, with make_array_from_callback for what each process has "
          "of its own";
      break;
  }
  fail(fmt::format("{}: {}{} differs between {} and {}. {}", headline, theirs.what,
                   text_of_equations(mine.equations, theirs.equations), peers_.text(peers_.self()),
                   peers_.text(from), remedy) +
           (mine.what == theirs.what ? "" : ". In the former it is " + mine.what),
       true);
}

}  // namespace shmap
