#include "core/device/runtime.h"

#include <pthread.h>

#include <cstdio>
#include <mutex>
#include <ostream>
#include <vector>

#include "core/base/env.h"
#include "core/base/fault.h"
#include "core/base/unwinder.h"
#include "core/device/at_exit.h"
#include "core/device/device_kinds.h"
#include "core/device/fork_guard.h"
#include "core/device/registry.h"
#include "core/processes/processes.h"
#include "shmap/error.h"

namespace shmap {

namespace {

std::string chosen_devices(const Options& options) {
  if (!options.devices.empty()) return options.devices;
  if (std::string set = env::text(env::Var::devices); !set.empty()) return set;
  for (const BackendFactory& factory : built_in_backends()) {
    if (const std::string answer = factory.default_devices(); !answer.empty()) return answer;
  }
  throw DeviceError(
      "this build of the library has no backend (CPU or CUDA), so there are no devices");
}

// In a job of several processes, "cuda" is one GPU per process.
int devices_of_each(const DeviceSpec& spec) {
  if (spec.count > 0) return spec.count;
  return spec.gpus.empty() ? 1 : static_cast<int>(spec.gpus.size());
}

// Where a launcher started several processes: connects them, so that their devices form one job.
void join_processes(const Options& options) {
  const Job job = job_of_environment();
  if (!job.is_several() || env::flag(env::Var::alone) || Processes::joined() != nullptr) return;
  StartCard card;
  const auto put = [](auto& to, const std::string& text) {
    std::snprintf(to, sizeof to, "%s", text.c_str());
  };
  const std::string devices = chosen_devices(options);
  const DeviceSpec spec = DeviceSpec::parse(devices);
  if (row_of(spec.kind).by_number && spec.count > 0) {
    throw DeviceError(
        job.text() + ", and their devices are \"" + devices +
        "\": virtual devices of one GPU are one process's, since NCCL, which leads from process to "
        "process, has one rank a GPU. Set SHMAP_DEVICES=cuda, which gives each process of a node "
        "the GPU of its number there, or cuda:I,J; or SHMAP_ALONE=1 where each process is to work "
        "for itself.");
  }
  card.peer = PeerCard::of_this_process();
  put(card.version, SHMAP_VERSION);
  put(card.devices, devices);
  card.kind = static_cast<std::int32_t>(spec.kind);
  card.count = devices_of_each(spec);
  std::string environment;
  for (const env::Variable& row : env::table())
    if (row.same) environment += (environment.empty() ? "" : " ") + env::setting(row);
  if (environment.size() >= sizeof card.environment) throw Error("the environment has no room");
  put(card.environment, environment);
  Processes::join(job, card, []() noexcept {
    const Runtime* runtime = detail::the_runtime.load(std::memory_order_acquire);
    if (runtime == nullptr || forked()) return;
    for (const auto& backend : runtime->backends()) {
      try {
        backend->synchronize();
      } catch (...) {
        continue;  // the error was reported already
      }
    }
  });
}

std::mutex& start_mutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

Runtime::Runtime(const Options& options) {
  device_string_ = chosen_devices(options);
  const DeviceSpec spec = DeviceSpec::parse(device_string_);
  const Processes* processes = Processes::joined();
  if (processes != nullptr) {
    process_index_ = processes->rank();
    process_count_ = processes->size();
  }
  std::string built_in;
  for (const BackendFactory& factory : built_in_backends()) {
    built_in += std::string(built_in.empty() ? "" : ", ") + row_of(factory.kind).spelled;
    if (factory.kind == spec.kind) {
      backends_.push_back(
          factory.make(spec, /*first_id=*/process_index_ * devices_of_each(spec), process_index_));
      break;
    }
  }
  if (backends_.empty()) {
    throw DeviceError("devices \"" + device_string_ + "\": " + row_of(spec.kind).spelled +
                      " is not built into this library (it has " + built_in +
                      "). Build it with that backend, or set SHMAP_DEVICES=cpu:8.");
  }
  const auto count = static_cast<int>(backend().devices().size());
  for (int id = 0; id < process_count_ * count; ++id)
    devices_.push_back(detail::DeviceAccess::make(id, id / count, spec.kind));
}

Runtime::~Runtime() = default;

const LocalDevice& Runtime::local_device(const Device& device) const {
  const auto local = local_devices();
  const int index = device.id() - local.front().device.id();
  if (device.kind() != backend().kind() || index < 0 || index >= static_cast<int>(local.size())) {
    throw DeviceError(device.str() + " is not driven by this process (" +
                      std::to_string(process_index_) + " of " + std::to_string(process_count_) +
                      "), whose devices are " + local.front().device.str() + " to " +
                      local.back().device.str());
  }
  return local[static_cast<std::size_t>(index)];
}

namespace detail {

constinit std::atomic<Runtime*> the_runtime{nullptr};

namespace {
// Keeps the runtime reachable for leak checkers in a forked child, where the_runtime is null.
Runtime* volatile kept = nullptr;
}  // namespace

Runtime& start_runtime(const Options* options) {
  if (forked()) throw_forked();
  std::lock_guard lock(start_mutex());
  Runtime* running = the_runtime.load(std::memory_order_acquire);
  if (running != nullptr) {
    if (options != nullptr && !options->devices.empty() &&
        options->devices != running->device_string()) {
      throw DeviceError("init: devices \"" + options->devices +
                        "\" asked for, but the runtime runs already with \"" +
                        running->device_string() +
                        "\": call init before the first use of a device");
    }
    return *running;
  }
  open_unwinder();
  env::check();
  // Parse the variable even where `options` overrides it, so that its errors are reported.
  if (const std::string set = env::text(env::Var::devices); !set.empty()) DeviceSpec::parse(set);
  if (const std::string faults = env::text(env::Var::fault); !faults.empty()) fault::arm(faults);
  watch_forks();
  // In a forked child runtime() takes the slow path, which throws before it locks anything.
  pthread_atfork(nullptr, nullptr, [] { the_runtime.store(nullptr, std::memory_order_relaxed); });
  // Before the devices: the handlers that stop devices at exit are registered later, and so run
  // earlier.
  join_processes(options != nullptr ? *options : Options());
  // Never destroyed: arrays in static variables may be destroyed after everything else.
  running = new Runtime(options != nullptr ? *options : Options());
  kept = running;
  stop_first_at_exit();
  stop_when_main_ends();
  the_runtime.store(running, std::memory_order_release);
  return *running;
}

}  // namespace detail

void init(int& /*argc*/, char**& /*argv*/, Options options) { detail::start_runtime(&options); }

std::vector<Device> devices() { return runtime().devices(); }

std::vector<Device> local_devices() {
  std::vector<Device> result;
  for (const LocalDevice& local : runtime().local_devices()) result.push_back(local.device);
  return result;
}

int process_index() { return runtime().process_index(); }
int process_count() { return runtime().process_count(); }

std::string Device::str() const {
  return std::string(row_of(kind_).class_name) + "(id=" + std::to_string(id_) + ")";
}

std::ostream& operator<<(std::ostream& os, const Device& d) { return os << d.str(); }

}  // namespace shmap
