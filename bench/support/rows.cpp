#include "bench/support/rows.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <stdexcept>

#include "bench/support/json.h"
#include "bench/support/table.h"

namespace shmap::bench {
namespace {

constexpr double kBatchSeconds = 2e-3;
constexpr double kWarmSeconds = 20e-3;
constexpr int kWarmCalls = 3;  // after the first one, which compiles; the second may capture
constexpr std::int64_t kMostCalls = std::int64_t{1} << 24;

double now() {
  using std::chrono::duration;
  using std::chrono::steady_clock;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  std::size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

const Row* find_row(const std::vector<Row>& rows, const std::string& name) {
  for (const Row& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}

void say(const Json& reply) {
  std::printf("%s\n", reply.text().c_str());
  std::fflush(stdout);
}

std::vector<std::string> words_of(const char* line) {
  std::vector<std::string> words;
  for (const char* p = line; *p != 0;) {
    std::size_t gap = std::strspn(p, " \t\r\n");
    std::size_t length = std::strcspn(p + gap, " \t\r\n");
    if (length > 0) words.emplace_back(p + gap, length);
    p += gap + length;
  }
  return words;
}

Json versions_json(const std::vector<std::pair<std::string, std::string>>& versions) {
  Json object = Json::object();
  for (const auto& [name, version] : versions) object.set(name, version);
  return object;
}

using NamedRow = std::function<std::optional<Row>(const std::string& name)>;

int serve(const std::string& program, const std::vector<Row>& rows,
          const std::vector<std::pair<std::string, std::string>>& versions, const NamedRow& named) {
  Json names = Json::list();
  for (const Row& row : rows) names.push(row.name);
  say(Json::object()
          .set("ready", program)
          .set("versions", versions_json(versions))
          .set("rows", names));
  std::map<std::string, Prepared> live;
  bool wrong = false;
  char line[4096];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    if (words[0] == "quit") break;
    std::string name = words.size() > 1 ? words[1] : "";
    Json reply = Json::object().set("row", name);
    try {
      if (words[0] == "prepare") {
        const Row* listed = find_row(rows, name);
        std::optional<Row> row;
        if (listed != nullptr)
          row = *listed;
        else if (named)
          row = named(name);
        if (!row) throw std::runtime_error("no such row");
        live.erase(name);
        const Prepared& prepared = live.emplace(name, *row).first->second;
        reply.set("about", prepared.about());
      } else if (words[0] == "round" && words.size() == 3) {
        Figure f = live.at(name).round(std::atof(words[2].c_str()));
        reply.set("us", f.us).set("calls", static_cast<double>(f.calls)).set("faults", f.faults);
      } else if (words[0] == "release") {
        live.erase(name);
      } else {
        throw std::runtime_error("unknown request");
      }
    } catch (const WrongResult& e) {
      wrong = true;
      std::fprintf(stderr, "#wrong %s %s: %s\n", program.c_str(), name.c_str(), e.what.c_str());
      reply.set("wrong", e.what);
    } catch (const std::exception& e) {
      reply.set("error", std::string(e.what()));
    }
    say(reply);
  }
  return wrong ? 1 : 0;
}

}  // namespace

Prepared::Prepared(const Row& row) : work_(row.make()) {
  double spent = time_batch(1);
  verify();
  const std::int64_t most = work_.max_calls > 0 ? work_.max_calls : kMostCalls;
  for (std::int64_t k = 1; k < most && (k <= kWarmCalls || spent < kWarmSeconds); ++k)
    spent += time_batch(1);
  while (2 * batch_ <= most) {
    double seconds = time_batch(batch_);
    if (seconds >= kBatchSeconds) break;
    double scale = 0.5 * kBatchSeconds / std::max(seconds, 1e-8);
    batch_ = std::max(2 * batch_, static_cast<std::int64_t>(scale * double(batch_)));
    batch_ = std::min(batch_, most);
  }
}

double Prepared::time_batch(std::int64_t n) {
  if (work_.time_batch) return work_.time_batch(n);
  double start = now();
  for (std::int64_t k = 0; k < n; ++k) work_.call();
  return now() - start;
}

void Prepared::verify() {
  std::string fault = work_.check ? work_.check() : "the row has no check";
  if (!fault.empty()) throw WrongResult{fault};
}

Figure Prepared::round(double milliseconds) {
  std::vector<double> times;
  double spent = 0;
  Figure figure;
  double faults = page_faults();
  do {
    double seconds = time_batch(batch_);
    spent += seconds;
    figure.calls += batch_;
    times.push_back(seconds / static_cast<double>(batch_));
    if (work_.max_calls > 0 && figure.calls >= work_.max_calls) break;
  } while (spent < milliseconds * 1e-3);
  figure.us = median(times) / work_.parts * 1e6;
  figure.faults = (page_faults() - faults) / static_cast<double>(figure.calls);
  verify();
  return figure;
}

int bench_main(int argc, char** argv, const std::string& program, const std::vector<Row>& rows,
               const std::vector<std::pair<std::string, std::string>>& versions,
               const NamedRow& named) {
  std::vector<std::string> chosen;
  std::string json_file;
  int rounds = 5;
  double milliseconds = 100;
  for (int k = 1; k < argc; ++k) {
    std::string arg = argv[k];
    bool has_value = k + 1 < argc;
    if (arg == "--serve") return serve(program, rows, versions, named);
    if (arg == "--list") {
      for (const Row& row : rows) std::printf("%s\n", row.name.c_str());
      return 0;
    }
    if (arg == "--row" && has_value) {
      chosen.push_back(argv[++k]);
    } else if (arg == "--json" && has_value) {
      json_file = argv[++k];
    } else if (arg == "--rounds" && has_value && std::atoi(argv[k + 1]) > 0) {
      rounds = std::atoi(argv[++k]);
    } else if (arg == "--ms" && has_value && std::atof(argv[k + 1]) > 0) {
      milliseconds = std::atof(argv[++k]);
    } else {
      std::fprintf(stderr,
                   "usage: %s [--list] [--row NAME]... [--rounds N] [--ms T] [--json FILE] "
                   "[--serve]\n",
                   argv[0]);
      return 2;
    }
  }
  for (const std::string& name : chosen) {
    if (find_row(rows, name) == nullptr) {
      std::fprintf(stderr, "%s: no row '%s' (--list prints them)\n", argv[0], name.c_str());
      return 2;
    }
  }

  bool failed = false;
  Table table({"row", "us/call", "calls", "GFLOP/s", "algbw GB/s", "busbw GB/s"});
  Json results = Json::list();
  for (const Row& row : rows) {
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), row.name) == chosen.end())
      continue;
    Json result = Json::object().set("row", row.name);
    try {
      Prepared prepared(row);
      std::vector<double> times;
      std::int64_t calls = 0;
      for (int k = 0; k < rounds; ++k) {
        Figure f = prepared.round(milliseconds);
        times.push_back(f.us);
        calls += f.calls;
      }
      double us = median(times);
      double gflops = row.units.flops / us * 1e-3;
      double algbw = row.units.bytes / us * 1e-3;
      result.set("us", us).set("calls", static_cast<double>(calls));
      if (row.units.flops > 0) result.set("gflops", gflops);
      if (row.units.bytes > 0)
        result.set("algbw", algbw).set("busbw", algbw * row.units.bus_factor);
      table.add({row.name, digits(us), std::to_string(calls),
                 row.units.flops > 0 ? digits(gflops) : "",
                 row.units.bytes > 0 ? digits(algbw) : "",
                 row.units.bytes > 0 ? digits(algbw * row.units.bus_factor) : ""});
    } catch (const WrongResult& e) {
      failed = true;
      std::printf("#wrong %s: %s\n", row.name.c_str(), e.what.c_str());
      result.set("wrong", e.what);
    } catch (const std::exception& e) {
      failed = true;
      std::printf("#error %s: %s\n", row.name.c_str(), e.what());
      result.set("error", std::string(e.what()));
    }
    results.push(result);
  }
  std::printf("%s", table.text().c_str());
  if (!json_file.empty()) {
    std::FILE* file = std::fopen(json_file.c_str(), "w");
    if (file == nullptr) {
      std::fprintf(stderr, "cannot write '%s'\n", json_file.c_str());
      return 1;
    }
    Json all = Json::object()
                   .set("program", program)
                   .set("versions", versions_json(versions))
                   .set("rows", results);
    const bool written = std::fprintf(file, "%s\n", all.text().c_str()) > 0;
    if (std::fclose(file) != 0 || !written) {
      std::fprintf(stderr, "cannot write '%s'\n", json_file.c_str());
      return 1;
    }
  }
  return failed ? 1 : 0;
}

}  // namespace shmap::bench
