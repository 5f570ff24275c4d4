// DeviceSpec: a device string, read.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "shmap/device.h"

namespace shmap {

// cpu:8, cpu:8/8, cpu:8/2; cuda, cuda:0,2, cuda:0x4, cuda:0x4/4.
struct DeviceSpec {
  DeviceKind kind = DeviceKind::cpu;
  int count = 0;          // virtual devices; 0: of each GPU in `gpus`, one
  int spaces = 1;         // memory spaces that they are spread over, in equal runs
  std::vector<int> gpus;  // empty: every GPU

  static constexpr int kMaxDevices = 65536;
  // Throws ValueError that quotes the text, says what is wrong and names the accepted forms.
  static DeviceSpec parse(std::string_view text);
};

}  // namespace shmap
