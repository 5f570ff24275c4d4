#include "core/processes/value_reports.h"

#include <fmt/format.h>

namespace shmap {
namespace {

// A process that calls a line more often than others leaves reports that nothing is compared with.
constexpr std::size_t kMostKept = 64;

std::string text_of_equations(std::uint32_t mine, std::uint32_t theirs) {
  return mine == theirs ? "" : fmt::format(" ({} equations and {})", mine, theirs);
}

struct Advice {
  const char* headline = "";
  const char* remedy = "";
};

Advice advice_for(SameValue::Role role) {
  switch (role) {
    case SameValue::Role::program:
      return {"the processes run different programs",
              "The function was traced otherwise there: look for a branch on process_index(), and "
              "for host values that are not the same (files, clocks, random numbers) and became "
              "constants; make_jaxpr of the function, printed by both processes, shows where they "
              "differ"};
    case SameValue::Role::captured:
      return {"the processes run the same program with other captured values",
              "Make it of the same host data in all processes, or pass what differs as a sharded "
              "argument"};
    case SameValue::Role::argument:
      return {"the processes give other values of an argument that all devices have alike",
              "Give it the same value in all processes, or a spec that splits it over the mesh, "
              "with make_array_from_callback for what each process has of its own"};
    case SameValue::Role::put:
      return {"the processes place other data where all devices have it alike",
              "Make it of the same host data in all processes (one file, one seed), or give a spec "
              "that splits it over the mesh, with make_array_from_callback for what each process "
              "has of its own"};
  }
  return {};
}

}  // namespace

std::uint32_t ValueReports::count(const SameValue& value) {
  return reports_[{value.space, value.key}].counted++;
}

std::string ValueReports::keep(const SameValue& value, std::uint32_t time, int others) {
  Reports& reports = reports_[{value.space, value.key}];
  reports.own[time] = {value, others};
  if (reports.own.size() > kMostKept) reports.own.erase(reports.own.begin());
  std::string difference;
  for (auto it = reports.early.lower_bound({time, -1});
       it != reports.early.end() && it->first.first == time && difference.empty();
       it = reports.early.erase(it))
    difference = compare(reports, time, it->first.second, it->second);
  return difference;
}

std::string ValueReports::take(int from, const SameValue& theirs, std::uint32_t time) {
  Reports& reports = reports_[{theirs.space, theirs.key}];
  if (reports.own.contains(time)) return compare(reports, time, from, theirs);
  if (time < reports.counted) return "";  // it was dropped
  reports.early[{time, from}] = theirs;
  if (reports.early.size() > kMostKept * static_cast<std::size_t>(peers_.size()))
    reports.early.erase(reports.early.begin());
  return "";
}

std::string ValueReports::compare(Reports& reports, std::uint32_t time, int from,
                                  const SameValue& theirs) {
  const auto it = reports.own.find(time);
  if (it == reports.own.end()) return "";
  const SameValue& mine = it->second.value;
  if (mine.hash == theirs.hash) {
    if (--it->second.awaited == 0) reports.own.erase(it);
    return "";
  }
  const auto [headline, remedy] = advice_for(mine.role);
  return fmt::format("{}: {}{} differs between {} and {}. {}", headline, theirs.what,
                     text_of_equations(mine.equations, theirs.equations),
                     peers_.text(peers_.self()), peers_.text(from), remedy) +
         (mine.what == theirs.what ? "" : ". In the former it is " + mine.what);
}

}  // namespace shmap
