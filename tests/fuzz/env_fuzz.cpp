// Text from the environment: the SHMAP_ variables, device strings and fault texts. Any bytes give a
// ValueError in printable text, or a value that is in range and means the same when read again.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "core/base/env.h"
#include "core/base/fault.h"
#include "core/cpu/executor/executor_options.h"
#include "core/device/spec.h"
#include "shmap/error.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

namespace {

struct Tally {
  long long accepted = 0, refused = 0;
  ~Tally() { std::printf("%lld values accepted, %lld refused\n", accepted, refused); }
};
Tally tally;

// setenv would keep every value that it was ever given, so that putenv is used.
void set(const std::string& name, std::string_view value) {
  static auto& kept = *new std::map<std::string, std::string>;  // the environment points into it
  // The former text lives until putenv has replaced it, which finds it by its name.
  std::string line = name + "=" + std::string(value);
  // A short text would move with its string.
  line.reserve(64);
  putenv(line.data());
  kept[name] = std::move(line);
}

// Requires that f() succeeds or throws a ValueError in printable text.
template <class F>
bool reads(F f) {
  try {
    f();
    ++tally.accepted;
    return true;
  } catch (const ValueError& e) {
    require_printable(e.what(), false);
    ++tally.refused;
    return false;
  }
}

void read_variable(const env::Variable& v, std::string_view value) {
  set(v.name, value);
  reads([&] {
    switch (v.kind) {
      case env::Kind::text:
      case env::Kind::choice:
        require(env::text(v.var) == (value.empty() ? v.default_value : value), "text is kept");
        break;
      case env::Kind::flag:
        env::flag(v.var);
        break;
      case env::Kind::integer: {
        const std::int64_t n = env::integer(v.var);
        require(n == -1 || (static_cast<double>(n) >= v.min && static_cast<double>(n) <= v.max),
                "an integer is in range");
        break;
      }
      case env::Kind::bytes:
        require(env::bytes(v.var) >= -1, "bytes are not negative");
        break;
      case env::Kind::seconds: {
        const double sec = env::seconds(v.var);
        require(sec >= v.min && sec <= v.max, "seconds are in range");
        break;
      }
    }
  });
  const bool all = reads([] { env::check(); });
  if (v.var == env::Var::executor || v.var == env::Var::workers)
    reads([] { cpu::ExecutorOptions::from_environment(); });
  set(v.name, "");
  require(all || reads([] { env::check(); }), "without the value nothing is wrong");
}

void read_devices(std::string_view text) {
  reads([&] {
    const DeviceSpec spec = DeviceSpec::parse(text);
    require(spec.count >= 0 && spec.count <= DeviceSpec::kMaxDevices, "the count is in range");
    require(spec.kind == DeviceKind::cuda || spec.count > 0, "there are CPU devices");
    require(spec.spaces >= 1 && (spec.count == 0 || spec.count % spec.spaces == 0),
            "the spaces divide the devices");
    for (const int gpu : spec.gpus) require(gpu >= 0, "a GPU's number is not negative");
  });
}

void read_fault(std::string_view text) {
  // The faults are read, but never happen: nothing here reaches a fault point.
  reads([&] { fault::arm(text); });
  fault::arm({});
}

}  // namespace

// The first byte selects the parser of the rest.
std::vector<std::string> seeds() {
  std::vector<std::string> all;
  std::size_t which = 0;
  const auto add = [&](std::initializer_list<const char*> values) {
    for (const char* value : values) all.push_back(static_cast<char>(which) + std::string(value));
    ++which;
  };
  add({"cpu:8", "cpu:8/8", "cpu:65536/2", "cuda", "cuda:0,2", "cuda:0x4", "cuda:1x8/4"});
  add({"kernel:throw", "read#3:short_read", "kernel@1#2:sleep=5,copy:nan", "allocate#7:oom"});
  for (const env::Variable& v : env::table()) {
    switch (v.kind) {
      case env::Kind::text:
      case env::Kind::choice:
        add({"async", "seeded:7", "auto", "direct", "nccl", "one", "/some/where"});
        break;
      case env::Kind::flag:
        add({"1", "true", "OFF", "no"});
        break;
      case env::Kind::integer:
        add({"1", "4096", "256"});
        break;
      case env::Kind::bytes:
        add({"1048576", "64K", "2GiB", "1T", "0b"});
        break;
      case env::Kind::seconds:
        add({"30", "0.5", "1e3", "0"});
        break;
    }
  }
  return all;
}

std::vector<std::string> dictionary() {
  return {"cpu",
          "cuda",
          ":",
          ",",
          "/",
          "x",
          "0",
          "1",
          "8",
          "65536",
          "65537",
          "-1",
          "+1",
          " ",
          "1e999",
          "nan",
          "inf",
          "0x10",
          "1.",
          ".5",
          "K",
          "MiB",
          "TB",
          "seeded:",
          "async",
          "#",
          "@",
          ":throw",
          "sleep=",
          "\xff",
          "\n",
          "9223372036854775807",
          "9223372036854775808",
          "18446744073709551616",
          "true",
          "kernel",
          "…"};
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap;
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  // The system ends a value at the first null character.
  const std::string_view value = all.substr(1, all.find('\0', 1) - 1);
  const std::size_t which = data[0] % (env::table().size() + 2);
  if (which == 0) {
    fuzz::read_devices(all.substr(1));
  } else if (which == 1) {
    fuzz::read_fault(all.substr(1));
  } else {
    fuzz::read_variable(env::table()[which - 2], value);
  }
  return 0;
}
