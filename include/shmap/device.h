// Devices and the start of the runtime.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace shmap {

namespace detail {
struct DeviceAccess;
}

struct Options {
  std::string devices = {};  // in the syntax of SHMAP_DEVICES; overrides that variable
};

enum class DeviceKind : std::uint8_t { cpu, cuda };

// A device of this job, as a small value. Prints as CpuDevice(id=3).
class Device {
 public:
  int id() const noexcept { return id_; }  // unique in the whole job
  // the index of the process that drives the device
  int process_index() const noexcept { return process_index_; }
  DeviceKind kind() const noexcept { return kind_; }
  std::string str() const;
  friend bool operator==(const Device& a, const Device& b) noexcept { return a.id_ == b.id_; }
  friend std::ostream& operator<<(std::ostream& os, const Device& d);

 private:
  friend struct detail::DeviceAccess;
  Device(int id, int process_index, DeviceKind kind) noexcept
      : id_(id), process_index_(process_index), kind_(kind) {}
  int id_;
  int process_index_;
  DeviceKind kind_;
};

// Starts the runtime. Calling init is optional: the first use of a device starts the runtime too.
// argc and argv are not read or changed. ValueError where a device string or an environment
// variable cannot be parsed; DeviceError where the devices do not exist, or where the runtime
// already runs with other devices.
void init(int& argc, char**& argv, Options = {});

std::vector<Device> devices();        // of all processes, in the order of their ids
std::vector<Device> local_devices();  // of this process
int process_index();
int process_count();

}  // namespace shmap
