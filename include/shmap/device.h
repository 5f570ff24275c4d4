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
  std::string devices = {};  // as SHMAP_DEVICES, and stronger than it
};

enum class DeviceKind : std::uint8_t { cpu, cuda };

// A device of this job: a small value that names it. Prints as CpuDevice(id=3).
class Device {
 public:
  int id() const noexcept { return id_; }                        // unique over all processes
  int process_index() const noexcept { return process_index_; }  // the process that drives it
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

// Starts the runtime: optional, the first use of a device does it too. Throws ValueError where a
// device string or an environment variable makes no sense, DeviceError where the devices are not
// there or the runtime runs already with others.
void init(int& argc, char**& argv, Options = {});

std::vector<Device> devices();        // of all processes, in id order
std::vector<Device> local_devices();  // those that this process drives
int process_index();
int process_count();

}  // namespace shmap
