// DeviceSpec: a parsed device string.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device_kinds.h"

namespace shmap {

// Its forms: cpu:8, cpu:8/8, cpu:8/2; cuda, cuda:0,2, cuda:0x4, cuda:0x4/4.
struct DeviceSpec {
  DeviceKind kind = kHostKind;
  int count = 0;          // virtual devices; 0: one for each GPU in `gpus`
  int spaces = 1;         // memory spaces; each serves equally many consecutive devices
  std::vector<int> gpus;  // empty: every GPU

  static constexpr int kMaxDevices = 65536;
  // ValueError where the text is not of these forms: quotes it, says what is wrong, and names the
  // forms.
  static DeviceSpec parse(std::string_view text);
};

}  // namespace shmap
