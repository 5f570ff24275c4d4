#include "core/base/env.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/base/nearest_name.h"
#include "core/base/printable.h"
#include "shmap/error.h"

extern char** environ;

namespace shmap::env {
namespace {

constexpr double kNoLimit = 9.0e18;
constexpr const char* kFlagForms = "1, true, on, yes, or 0, false, off, no";
constexpr const char* kPathForms = "a path or a library's name";
constexpr const char* kSecondsForms = "seconds, as 30 or 0.5; 0 for never";

constexpr Variable kTable[] = {
    {Var::devices, "SHMAP_DEVICES", Kind::text, "",
     "cpu:N, cpu:N/SPACES, cuda, cuda:ID,ID,…, cuda:IDxN, cuda:IDxN/SPACES",
     "the devices of this process; unset: cuda where a GPU answers, else cpu:8", 0, 0},
    {Var::executor, "SHMAP_EXECUTOR", Kind::choice, "async", "inline, async, seeded, seeded:N",
     "how CPU tasks run: at once, on workers, or in an order drawn from seed N", 0, 0},
    {Var::workers, "SHMAP_WORKERS", Kind::integer, "", "a count from 1 to 4096",
     "CPU worker threads; unset: as many as there are cores to run on", 1, 4096},
    {Var::instruction_set, "SHMAP_INSTRUCTION_SET", Kind::choice, "auto",
     "auto, avx512, avx2, baseline",
     "the most that CPU kernels of this library use of what the processor has", 0, 0, true},
    {Var::memory_limit, "SHMAP_MEMORY_LIMIT", Kind::bytes, "", "bytes, as 1048576, 512M or 2G",
     "the most that a memory space may hold; unset: no limit", 0, kNoLimit},
    {Var::collective_warn_sec, "SHMAP_COLLECTIVE_WARN_SEC", Kind::seconds, "30", kSecondsForms,
     "a wait that takes longer says so", 0, 1e9},
    {Var::collective_timeout_sec, "SHMAP_COLLECTIVE_TIMEOUT_SEC", Kind::seconds, "600",
     kSecondsForms, "a wait that takes longer fails", 0, 1e9},
    {Var::fault, "SHMAP_FAULT", Kind::text, "", "point[@device][#n]:action, comma separated",
     "makes something go wrong, for tests", 0, 0},
    {Var::check_nans, "SHMAP_CHECK_NANS", Kind::flag, "0", kFlagForms,
     "waits for each op, and throws where a result holds a NaN", 0, 1, true},
    {Var::check_captures, "SHMAP_CHECK_CAPTURES", Kind::flag, "0", kFlagForms,
     "jit traces at every call, and throws where a captured value changed", 0, 1, true},
    {Var::check_keys, "SHMAP_CHECK_KEYS", Kind::flag, "0", kFlagForms,
     "throws where a random key is used a second time", 0, 1},
    {Var::explain_retrace, "SHMAP_EXPLAIN_RETRACE", Kind::flag, "0", kFlagForms,
     "jit says on standard error why it traces again", 0, 1},
    {Var::dump, "SHMAP_DUMP", Kind::text, "", "a folder", "jit writes its programs and plans there",
     0, 0},
    {Var::jit_cache, "SHMAP_JIT_CACHE", Kind::integer, "256", "a count from 1 to 1000000",
     "how many programs each jit function keeps: those that were called last", 1, 1e6, true},
    {Var::cublaslt_path, "SHMAP_CUBLASLT_PATH", Kind::text, "", kPathForms,
     "the cuBLASLt that GPUs' matrix products are done by; unset: the system's", 0, 0},
    {Var::nccl_path, "SHMAP_NCCL_PATH", Kind::text, "", kPathForms,
     "the NCCL that GPUs communicate by; unset: the system's", 0, 0},
    {Var::nvrtc_path, "SHMAP_NVRTC_PATH", Kind::text, "", kPathForms,
     "the NVRTC that compiles fused kernels; unset: the system's", 0, 0},
    {Var::cudnn_path, "SHMAP_CUDNN_PATH", Kind::text, "", kPathForms,
     "the cuDNN whose attention GPUs may use; unset: the system's", 0, 0},
    {Var::mpi_path, "SHMAP_MPI_PATH", Kind::text, "", kPathForms,
     "the OpenMPI that processes are joined by; unset: the system's", 0, 0},
    {Var::cache_dir, "SHMAP_CACHE_DIR", Kind::text, "", "a folder, or off",
     "where compiled kernels are kept for the next process; unset: ~/.cache/shmap", 0, 0},
    {Var::communicator, "SHMAP_COMMUNICATOR", Kind::choice, "auto", "auto, in_process, nccl",
     "what carries collectives; auto: by the devices and the operation", 0, 0, true},
    {Var::graphs, "SHMAP_GRAPHS", Kind::choice, "auto", "auto, one, per_gpu",
     "what a plan of several GPUs is replayed as: one graph of all, or one for each GPU; auto: one "
     "where the driver takes it",
     0, 0, true},
    {Var::link, "SHMAP_LINK", Kind::choice, "direct", "direct, staged",
     "how copies go between memory spaces of GPUs: directly, or through pinned host memory", 0, 0,
     true},
    {Var::tf32, "SHMAP_TF32", Kind::flag, "0", kFlagForms,
     "GPUs' matrix products of f32 round their operands to TF32", 0, 1, true},
    {Var::time_gemms, "SHMAP_TIME_GEMMS", Kind::flag, "1", kFlagForms,
     "a GPU's first product of each size measures a few algorithms; off: it takes the first", 0, 1},
    {Var::small_products, "SHMAP_SMALL_PRODUCTS", Kind::flag, "1", kFlagForms,
     "GPUs' small matrix products are computed by kernels of this library; off: by cuBLASLt too", 0,
     1, true},
    {Var::dependent_launch, "SHMAP_DEPENDENT_LAUNCH", Kind::flag, "1", kFlagForms,
     "in a graph, a GPU's kernel may be launched while the one before it still runs", 0, 1},
    {Var::attention, "SHMAP_ATTENTION", Kind::flag, "1", kFlagForms,
     "attention is one kernel, where the devices have it; off: operations one by one", 0, 1, true},
    {Var::attention_kernel, "SHMAP_ATTENTION_KERNEL", Kind::choice, "auto",
     "auto, own, own_wgmma, cudnn, cudnn_unordered",
     "what computes attention on GPUs; auto: the faster one, measured; own_wgmma: kernels of this "
     "library, forward with instructions of Hopper GPUs; cudnn: cuDNN where it can; "
     "cudnn_unordered: also where the bits may differ from run to run",
     0, 0, true},
    {Var::fuse_products, "SHMAP_FUSE_PRODUCTS", Kind::flag, "1", kFlagForms,
     "jit makes a GPU's matrix product and what is added to it, its activation or the update "
     "that it is one call",
     0, 1, true},
    {Var::overlap, "SHMAP_OVERLAP", Kind::choice, "auto", "auto, none, ring, two_rings",
     "the form of overlapped products that are asked for as automatic, and of those that jit "
     "finds; "
     "auto: by a model of the devices",
     0, 0, true},
    {Var::find_overlap, "SHMAP_FIND_OVERLAP", Kind::flag, "1", kFlagForms,
     "jit makes products of gathered operands, and products that are summed and scattered, "
     "overlapped ones where that pays",
     0, 1, true},
    {Var::rematerialize, "SHMAP_REMATERIALIZE", Kind::flag, "1", kFlagForms,
     "jit computes values later, and elementwise ones again, where keeping them would raise a "
     "program's peak of memory",
     0, 1, true},
    {Var::alone, "SHMAP_ALONE", Kind::flag, "0", kFlagForms,
     "a process that mpirun or srun started with others works for itself, with devices of its own",
     0, 1},
    {Var::shared_memory, "SHMAP_SHARED_MEMORY", Kind::choice, "auto", "auto, messages, 1, 0",
     "what goes between processes of one node through shared memory; auto: messages and blocks of "
     "less than 2 MB, and what is larger is read in the other process; messages: messages of up to "
     "8 KB; 1: all data; 0: nothing, all goes through MPI",
     0, 0},
};

const Variable& row(Var var) {
  for (const Variable& v : kTable) {
    if (v.var == var) return v;
  }
  throw Error("environment variable without a row in the table");
}

// The variable's value; null where it is unset or empty.
const char* raw(const Variable& v) {
  const char* value = std::getenv(v.name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

[[noreturn]] void refuse(const Variable& v, std::string_view given) {
  throw ValueError(std::string(v.name) + "=\"" + printable(given) +
                   "\" cannot be read: accepted are " + v.forms + " (" + v.doc + ")");
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool to_flag(const Variable& v, std::string_view s) {
  for (const char* word : {"1", "true", "on", "yes"}) {
    if (equal_ignoring_case(s, word)) return true;
  }
  for (const char* word : {"0", "false", "off", "no"}) {
    if (equal_ignoring_case(s, word)) return false;
  }
  refuse(v, s);
}

// True if s is one of the comma-separated words of v.forms; "word:N" stands for the word with any
// number.
bool is_choice(const Variable& v, std::string_view s) {
  for (std::string_view rest = v.forms; !rest.empty();) {
    const std::string_view form = rest.substr(0, rest.find(", "));
    rest = form.size() == rest.size() ? std::string_view() : rest.substr(form.size() + 2);
    if (s == form) return !form.ends_with(":N");
    if (!form.ends_with(":N") || !s.starts_with(form.substr(0, form.size() - 1))) continue;
    const std::string_view digits = s.substr(form.size() - 1);
    std::uint64_t n = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (error == std::errc() && end == digits.data() + digits.size()) return true;
  }
  return false;
}

std::int64_t to_integer(const Variable& v, std::string_view s) {
  std::int64_t n = 0;
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (error != std::errc() || end != s.data() + s.size()) refuse(v, s);
  if (static_cast<double>(n) < v.min || static_cast<double>(n) > v.max) refuse(v, s);
  return n;
}

std::int64_t to_bytes(const Variable& v, std::string_view s) {
  std::int64_t n = 0;
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (error != std::errc() || n < 0) refuse(v, s);
  const std::string_view unit(end, static_cast<std::size_t>(s.data() + s.size() - end));
  int shift = -1;
  if (unit.empty() || equal_ignoring_case(unit, "B")) shift = 0;
  for (int i = 0; i < 4; ++i) {
    const std::string letter(1, "KMGT"[i]);
    if (equal_ignoring_case(unit, letter) || equal_ignoring_case(unit, letter + "B") ||
        equal_ignoring_case(unit, letter + "iB")) {
      shift = 10 * (i + 1);
    }
  }
  if (shift < 0 || n > (INT64_MAX >> shift)) refuse(v, s);
  return n << shift;
}

double to_seconds(const Variable& v, std::string_view s) {
  double x = 0;
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), x);
  // Written so that a NaN is refused too.
  if (error != std::errc() || end != s.data() + s.size() || !(x >= v.min && x <= v.max)) {
    refuse(v, s);
  }
  return x;
}

void check_value(const Variable& v) {
  const char* value = raw(v);
  if (value == nullptr) return;
  switch (v.kind) {
    case Kind::text:
      break;  // the code that uses the variable parses it
    case Kind::choice:
      if (!is_choice(v, value)) refuse(v, value);
      break;
    case Kind::flag:
      to_flag(v, value);
      break;
    case Kind::integer:
      to_integer(v, value);
      break;
    case Kind::bytes:
      to_bytes(v, value);
      break;
    case Kind::seconds:
      to_seconds(v, value);
      break;
  }
}

}  // namespace

std::span<const Variable> table() { return kTable; }

std::string text(Var var) {
  const Variable& v = row(var);
  check_value(v);
  const char* value = raw(v);
  return value != nullptr ? value : v.default_value;
}

bool flag(Var var) {
  const Variable& v = row(var);
  const char* value = raw(v);
  return to_flag(v, value != nullptr ? value : v.default_value);
}

std::int64_t integer(Var var) {
  const Variable& v = row(var);
  const char* value = raw(v);
  if (value == nullptr) value = v.default_value;
  return *value == '\0' ? -1 : to_integer(v, value);
}

std::int64_t bytes(Var var) {
  const Variable& v = row(var);
  const char* value = raw(v);
  if (value == nullptr) value = v.default_value;
  return *value == '\0' ? -1 : to_bytes(v, value);
}

double seconds(Var var) {
  const Variable& v = row(var);
  const char* value = raw(v);
  return to_seconds(v, value != nullptr ? value : v.default_value);
}

std::string setting(const Variable& v) {
  const char* value = raw(v);
  if (value == nullptr) value = v.default_value;
  const std::string text = v.kind == Kind::flag ? (to_flag(v, value) ? "1" : "0") : value;
  return std::string(v.name) + "=" + text;
}

void check() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    if (!line.starts_with("SHMAP_")) continue;
    const std::string_view name = line.substr(0, line.find('='));
    if (name.starts_with("SHMAP_TEST_") || name.starts_with("SHMAP_BENCH_") ||
        name.starts_with("SHMAP_SIM_"))
      continue;
    if (std::ranges::any_of(kTable, [&](const Variable& v) { return name == v.name; })) continue;
    const std::string_view shown = name.substr(0, 80);
    const Variable& nearest = *std::ranges::min_element(
        kTable, {}, [&](const Variable& v) { return edit_distance(shown, v.name); });
    std::string all;
    for (const Variable& v : kTable) all += std::string(all.empty() ? "" : ", ") + v.name;
    throw ValueError("environment variable " + printable(name) +
                     " is not one of this library's; the nearest is " + nearest.name + " (" +
                     nearest.doc + "). The library's are " + all +
                     ". Unset it or correct its name.");
  }
  for (const Variable& v : kTable) check_value(v);
}

}  // namespace shmap::env
