// collectives_bench: the time of each collective over all devices of all processes, in the columns
// and with the options of nccl-tests. The values are integers that every dtype holds exactly, and
// all results of a call on other values than the timed ones are checked; the exit code is 1 if one
// is wrong. Under mpirun process 0 prints, the timed calls begin after a barrier, and a row's time
// is that of the slowest process.
//
//   mpirun -n 4 collectives_bench all_reduce -b 1K -e 16M -f 4 -n 20 -w 5 -g 2 -c 1 -o all -d float
//
// Sums, means, maxima and minima over all devices, and scattered sums, are one collective each.
// The other reductions are programs of two operations, as a user would write them: a product
// gathers and multiplies; a scattered product, maximum or minimum exchanges the blocks and reduces
// them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/processes/job.h"
#include "shmap/shmap.h"

using namespace shmap;

namespace {

enum class Redop { none, sum, prod, min, max, avg };

// The reductions by their names in nccl-tests.
const std::map<std::string, Redop> redops = {{"sum", Redop::sum},
                                             {"prod", Redop::prod},
                                             {"min", Redop::min},
                                             {"max", Redop::max},
                                             {"avg", Redop::avg}};
const std::map<std::string, DType> dtypes = {
    {"int8", i8},    {"uint8", u8}, {"int32", i32}, {"uint32", u32}, {"int64", i64},
    {"uint64", u64}, {"half", f16}, {"float", f32}, {"double", f64}, {"bfloat16", bf16}};

constexpr int kLeastWarmup = 3;  // calls until a program is replayed
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

struct BenchOptions {
  std::int64_t begin = 8, end = 32 << 20, factor = 2;
  int iterations = 20, warmup = 5, devices = 0, root = 0;
  bool check = true, eager = false;
  std::string json, redop = "sum", dtype = "int32";
  std::vector<std::string> collectives;
};

// Returns the names that an option chooses: the given name, or all names for "all".
template <class T>
std::vector<std::string> chosen(const std::map<std::string, T>& names, const std::string& option) {
  if (option != "all") return {option};
  std::vector<std::string> all;
  for (const auto& [name, value] : names) all.push_back(name);
  return all;
}

// The validator of such an option.
template <class T>
CLI::IsMember one_or_all(const std::map<std::string, T>& names) {
  std::vector<std::string> allowed = chosen(names, "all");
  allowed.emplace_back("all");
  return CLI::IsMember(allowed);
}

constexpr std::int64_t kMostAveragedBytes = 127;  // devices whose mean of one byte is computed

// Element i of a device's operand. It is so small that results are exact in each dtype, in one byte
// too, except for means over more than kMostAveragedBytes devices.
std::int64_t value(Redop op, std::int64_t itemsize, std::int64_t n, std::int64_t device,
                   std::int64_t i) {
  if (op == Redop::avg) {
    const std::int64_t mean = itemsize == 1 && 2 * n > kMostAveragedBytes ? 1 : 1 + i / n % 2;
    return device == i % n ? n * mean : 0;
  }
  const std::int64_t mixed = device * 7 + i;
  const bool adds = itemsize > 2 || device < 60;  // to sums and products that have to stay small
  if (op == Redop::prod) return adds && mixed % 13 == 0 ? 2 : 1;
  if (op == Redop::sum && itemsize <= 2) return adds ? mixed % 3 : 0;
  return mixed % 13;
}

// Reduces a number over all processes: the first device of a process has the number, its others 0.
template <class T, class F>
T over_processes(const Mesh& mesh, T mine, F reduce) {
  std::vector<T> host(static_cast<std::size_t>(mesh.size()));
  host[static_cast<std::size_t>(local_devices().front().id())] = mine;
  const Array each = device_put(array<T>(host, {mesh.size()}), NamedSharding(mesh, P("i")));
  return shard_map(reduce, mesh, {P("i")}, P())(each).template to_vector<T>()[0];
}

// The shift of element i of the operands that are timed, and of those that are checked. They
// differ since a call that wrote nothing would find the right values in memory that an earlier call
// left.
constexpr std::int64_t kTimed = 0, kChecked = 1;

// Sizes are counted as in nccl-tests, for a request that is not divisible by the devices too: a
// row has the bytes that a device sends or, for gathers, receives in all, and the count that a call
// of NCCL would get.
struct Case {
  const char* name;
  bool reduces;
  double bus;           // busbw = algbw * bus
  std::int64_t count;   // elements of a device's operand
  std::int64_t size;    // bytes, for the columns size and algbw
  std::int64_t column;  // for the column count
  std::function<Array(Array)> body;
  std::function<std::int64_t(std::int64_t device, std::int64_t i)> wanted;  // of kChecked
};

Array reduced(const Array& x, Redop op, int axis) {
  switch (op) {
    case Redop::min:
      return min(x, axis);
    case Redop::max:
      return max(x, axis);
    default:
      return astype(prod(x, axis), x.dtype());
  }
}

Array all_reduced(const Array& x, Redop op) {
  switch (op) {
    case Redop::min:
      return pbroadcast(pmin(x, "i"), "i");
    case Redop::max:
      return pbroadcast(pmax(x, "i"), "i");
    case Redop::avg:
      return pbroadcast(pmean(x, "i"), "i");
    case Redop::prod:
      return reduced(all_gather(x, "i", {.axis = 0}), op, 0);
    default:
      return pbroadcast(psum(x, "i"), "i");
  }
}

Array reduce_scattered(const Array& x, Redop op, std::int64_t n) {
  if (op == Redop::sum || op == Redop::avg) {
    const Array sums = psum_scatter(x, "i", {.scatter_dimension = 0, .tiled = true});
    return op == Redop::sum ? sums : sums / static_cast<int>(n);
  }
  return reduced(reshape(all_to_all(x, "i", 0, 0, {.tiled = true}), {n, -1}), op, 0);
}

std::vector<Case> cases(std::int64_t n, std::int64_t size, Redop op, DType dtype, int root) {
  const std::int64_t total = std::max<std::int64_t>(1, size / itemsize(dtype));
  const std::int64_t each = std::max<std::int64_t>(1, total / n);
  const double some = static_cast<double>(n - 1) / static_cast<double>(n);
  const std::int64_t bytes = itemsize(dtype);
  const auto sent = [=](std::int64_t d, std::int64_t i) {
    return value(Redop::none, bytes, n, d, i + kChecked);
  };
  const auto of_all = [=](std::int64_t i) {
    std::int64_t r = value(op, bytes, n, 0, i + kChecked);
    for (std::int64_t d = 1; d < n; ++d) {
      const std::int64_t v = value(op, bytes, n, d, i + kChecked);
      switch (op) {
        case Redop::min:
          r = std::min(r, v);
          break;
        case Redop::max:
          r = std::max(r, v);
          break;
        case Redop::prod:
          r *= v;
          break;
        default:
          r += v;
      }
    }
    return op == Redop::avg ? r / n : r;
  };
  std::vector<std::pair<int, int>> ring;
  for (int d = 0; d < n; ++d) ring.push_back({d, static_cast<int>((d + 1) % n)});
  return {
      {"all_reduce", true, 2 * some, total, total * bytes, total,
       [op](Array x) { return all_reduced(x, op); },
       [=](std::int64_t, std::int64_t i) { return of_all(i); }},
      {"all_gather", false, some, each, n * each * bytes, each,
       [](Array x) { return all_gather(x, "i", {.axis = 0, .tiled = true}); },
       [=](std::int64_t, std::int64_t i) { return sent(i / each, i % each); }},
      {"reduce_scatter", true, some, each * n, n * each * bytes, each,
       [=](Array x) { return reduce_scattered(x, op, n); },
       [=](std::int64_t d, std::int64_t i) { return of_all(d * each + i); }},
      {"alltoall", false, some, each * n, n * each * bytes, each,
       [](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); },
       [=](std::int64_t d, std::int64_t i) { return sent(i / each, d * each + i % each); }},
      {"sendrecv", false, 1, total, total * bytes, total,
       [ring](Array x) { return ppermute(x, "i", ring); },
       [=](std::int64_t d, std::int64_t i) { return sent((d + n - 1) % n, i); }},
      {"broadcast", false, 1, total, total * bytes, total,
       [root](Array x) { return pbroadcast(broadcast_from(x, "i", root), "i"); },
       [=](std::int64_t, std::int64_t i) { return sent(root, i); }},
  };
}

// The devices of this process as text, "" for 0 devices. They are GPUs if SHMAP_DEVICES asks for
// GPUs (assigned to the processes of a node as nccl-tests does), and virtual devices otherwise.
std::string devices_of_process(int count) {
  if (count == 0) return {};
  const char* kind = std::getenv("SHMAP_DEVICES");
  if (kind == nullptr || !std::string_view(kind).starts_with("cuda"))
    return "cpu:" + std::to_string(count);
  const int first = std::max(0, job_of_environment().node_rank) * count;
  std::string text = "cuda:" + std::to_string(first);
  for (int i = 1; i < count; ++i) text += "," + std::to_string(first + i);
  return text;
}

struct Row {
  double us;
  std::int64_t wrong;
};

Row measured(const Case& c, Redop op, DType dtype, const Mesh& mesh, const BenchOptions& o) {
  const std::int64_t n = mesh.size();
  if (!c.reduces) op = Redop::none;
  // Each process makes the blocks of its own devices only.
  const auto operand = [&](std::int64_t shift) {
    const auto fill = [&](std::span<const Slice> index, std::span<std::int32_t> block) {
      const std::int64_t device = index[0].start / c.count;
      for (std::int64_t i = 0; i < c.count; ++i)
        block[static_cast<std::size_t>(i)] =
            static_cast<std::int32_t>(value(op, itemsize(dtype), n, device, i + shift));
    };
    return astype(
        make_array_from_callback<std::int32_t>({n * c.count}, NamedSharding(mesh, P("i")), fill),
        dtype);
  };
  const Array x = operand(kTimed);
  const auto mapped = shard_map(c.body, mesh, {P("i")}, P("i"));
  const std::function<Array(const Array&)> f =
      o.eager ? std::function<Array(const Array&)>(mapped) : jit(mapped);
  for (int i = 0; i < std::max(kLeastWarmup, o.warmup); ++i) f(x).block_until_ready();
  // A barrier, as in nccl-tests: a process that begins before the others are ready would count its
  // wait for them.
  over_processes(mesh, 0, [](Array w) { return psum(w, "i"); });
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < o.iterations; ++i) f(x).block_until_ready();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  // The slowest process counts, since a process that only sends ends before the others.
  Row row{over_processes<double>(mesh, taken.count() / o.iterations,
                                 [](Array t) { return pmax(t, "i"); }),
          0};
  if (!o.check) return row;
  for (const Shard& shard : f(operand(kChecked)).addressable_shards()) {
    const auto got = astype(shard.data, f64).to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i)
      row.wrong +=
          got[i] != static_cast<double>(c.wanted(shard.device.id(), static_cast<std::int64_t>(i)));
  }
  // Sums over all processes, so that each of them ends with the exit code of the job.
  row.wrong = over_processes(mesh, row.wrong, [](Array w) { return psum(w, "i"); });
  return row;
}

// The names that `cases` has, for the option.
std::vector<std::string> names_of_cases() {
  std::vector<std::string> names;
  for (const Case& c : cases(1, 8, Redop::sum, i32, 0)) names.emplace_back(c.name);
  return names;
}

bool failed = false;  // a wrong value, or a file that cannot be written

}  // namespace

int main(int argc, char** argv) {
  BenchOptions o;
  CLI::App app("The time of each collective over all devices of all processes");
  app.add_option("collectives", o.collectives, "all_reduce, all_gather …; without any, all of them")
      ->check(CLI::IsMember(names_of_cases()));
  for (const auto& [option, bytes, text] :
       {std::tuple("-b", &o.begin, "bytes to begin with, as 1K"),
        std::tuple("-e", &o.end, "bytes to end with")})
    app.add_option(option, *bytes, text)
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::int64_t{1}, kMostBytes));
  app.add_option("-f", o.factor, "from a size to the next")->check(CLI::Range(2, 1024));
  app.add_option("-n", o.iterations, "timed calls")->check(CLI::PositiveNumber);
  app.add_option("-w", o.warmup, "calls before them, at least 3")->check(CLI::NonNegativeNumber);
  app.add_option("-g", o.devices,
                 "devices of a process: GPUs where SHMAP_DEVICES=cuda, otherwise virtual ones; "
                 "without it SHMAP_DEVICES as it is")
      ->check(CLI::PositiveNumber);
  app.add_option("-o", o.redop, "sum, prod, min, max, avg or all")->check(one_or_all(redops));
  app.add_option("-d", o.dtype,
                 "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16 or all")
      ->check(one_or_all(dtypes));
  app.add_option("-r", o.root, "of broadcasts: the device that has the data")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-c", o.check, "1: values are checked; 0: they are not")
      ->check(CLI::IsMember({"0", "1"}));
  app.add_flag("--eager", o.eager, "calls without jit");
  app.add_option("-J", o.json, "a file for the rows");
  app.callback([&] {
    if (o.end < o.begin) {
      throw CLI::ValidationError("-e", std::to_string(o.end) + " bytes are fewer than the " +
                                           std::to_string(o.begin) +
                                           " of -b, with which it begins");
    }
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // All processes read the same options. One prints, and alone ends with the error, at which
    // mpirun ends the others.
    return std::max(0, job_of_environment().rank) == 0 ? app.exit(e) : 0;
  }
  // A process that ends with 1 is a fault to processes that still wait for it. Therefore the exit
  // code is set only after the library has left the job, which it does at exit. This handler runs
  // after the library's, since it is registered before.
  std::atexit([] {
    if (!failed) return;
    std::fflush(nullptr);
    std::_Exit(1);
  });
  init(argc, argv, {.devices = devices_of_process(o.devices)});
  const auto n = static_cast<std::int64_t>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  const bool prints = process_index() == 0;
  if (o.root >= n) {
    if (prints) {
      std::fprintf(stderr, "-r: %d is no device: there are %lld, from 0\n", o.root,
                   static_cast<long long>(n));
    }
    failed = true;
    return 0;
  }
  if (n > kMostAveragedBytes && (o.redop == "avg" || o.redop == "all") &&
      (o.dtype == "int8" || o.dtype == "uint8" || o.dtype == "all")) {
    if (prints) {
      std::fprintf(stderr, "-o avg: the sum of %lld devices' values does not fit in a byte\n",
                   static_cast<long long>(n));
    }
    failed = true;
    return 0;
  }
  std::int64_t wrong_in_all = 0;
  std::string rows;
  if (prints) {
    std::printf("# %d processes, %lld devices; time: of a call %s\n", process_count(),
                static_cast<long long>(n), o.eager ? "without jit" : "of a captured program");
  }
  const auto cases_of = [&](std::int64_t size, Redop op, DType dtype) {
    return cases(n, size, op, dtype, o.root);
  };
  const std::size_t kinds = cases_of(8, Redop::sum, i32).size();
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    const Case first = cases_of(8, Redop::sum, i32)[kind];
    if (!o.collectives.empty() &&
        std::find(o.collectives.begin(), o.collectives.end(), first.name) == o.collectives.end())
      continue;
    if (prints) {
      std::printf("# %s\n#%13s %12s %8s %6s %10s %8s %8s %7s\n", first.name, "size(B)", "count",
                  "type", "redop", "time(us)", "algbw", "busbw", "#wrong");
    }
    const std::vector<std::string> ops =
        first.reduces ? chosen(redops, o.redop) : std::vector<std::string>{"none"};
    for (std::int64_t size = o.begin; size <= o.end; size *= o.factor) {
      for (const std::string& type : chosen(dtypes, o.dtype)) {
        for (const std::string& redop : ops) {
          const DType dtype = dtypes.at(type);
          const Redop op = first.reduces ? redops.at(redop) : Redop::none;
          const Case c = cases_of(size, op, dtype)[kind];
          const Row row = measured(c, op, dtype, mesh, o);
          wrong_in_all += row.wrong;
          if (!prints) continue;
          const double algbw = static_cast<double>(c.size) / row.us / 1e3;
          const std::string wrong = o.check ? std::to_string(row.wrong) : "N/A";
          std::printf(" %13lld %12lld %8s %6s %10.2f %8.3f %8.3f %7s\n",
                      static_cast<long long>(c.size), static_cast<long long>(c.column),
                      type.c_str(), redop.c_str(), row.us, algbw, algbw * c.bus, wrong.c_str());
          std::fflush(stdout);
          rows += std::string(rows.empty() ? "" : ",\n") + "  {\"op\": \"" + c.name +
                  "\", \"type\": \"" + type + "\", \"redop\": \"" + redop +
                  "\", \"size\": " + std::to_string(c.size) +
                  ", \"count\": " + std::to_string(c.column) +
                  ", \"time_us\": " + std::to_string(row.us) +
                  ", \"algbw\": " + std::to_string(algbw) +
                  ", \"busbw\": " + std::to_string(algbw * c.bus) +
                  ", \"wrong\": " + (o.check ? wrong : "null") + "}";
        }
      }
    }
  }
  if (prints && !o.json.empty()) {
    std::ofstream file(o.json);
    file << "{\"processes\": " << process_count() << ", \"devices\": " << n << ", \"rows\": [\n"
         << rows << "\n]}\n";
    file.close();
    if (!file) {
      std::fprintf(stderr, "-J: %s cannot be written\n", o.json.c_str());
      failed = true;
    }
  }
  failed = failed || wrong_in_all != 0;
  const std::string in_all = o.check ? std::to_string(wrong_in_all) : "N/A";
  if (prints) std::printf("# wrong values: %s\n", in_all.c_str());
  // Another process's exit code 1 lets mpirun end this one, perhaps before it gets to exit.
  std::fflush(stdout);
  return 0;
}
