#include "core/device/spec.h"

#include <algorithm>
#include <charconv>

#include "core/base/printable.h"
#include "shmap/error.h"

namespace shmap {
namespace {

constexpr const char* kForms =
    "cpu:N (N virtual devices in one memory space, as cpu:8), cpu:N/S (spread over S memory "
    "spaces, as cpu:8/8 or cpu:8/2; S divides N), cuda (every GPU), cuda:I,J (those GPUs), "
    "cuda:IxN (N virtual devices on GPU I), cuda:IxN/S";

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw ValueError("devices \"" + printable(text) + "\": " + why + ". Accepted are " + kForms +
                   " (SHMAP_DEVICES, Options::devices)");
}

// Reads the digits at the front of rest and removes them.
int take_number(std::string_view& rest, std::string_view text, const char* what, int min) {
  int n = 0;
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), n);
  if (error == std::errc::invalid_argument) {
    refuse(text, std::string(what) + " is missing or not a number");
  }
  if (error != std::errc() || n < min || n > DeviceSpec::kMaxDevices) {
    refuse(text, std::string(what) + " has to be from " + std::to_string(min) + " to " +
                     std::to_string(DeviceSpec::kMaxDevices));
  }
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return n;
}

bool take(std::string_view& rest, char c) {
  if (rest.empty() || rest.front() != c) return false;
  rest.remove_prefix(1);
  return true;
}

void take_spaces(DeviceSpec& spec, std::string_view& rest, std::string_view text) {
  if (!take(rest, '/')) return;
  spec.spaces = take_number(rest, text, "the number of memory spaces", 1);
  if (spec.count % spec.spaces != 0) {
    refuse(text, std::to_string(spec.spaces) + " memory spaces do not divide " +
                     std::to_string(spec.count) + " devices");
  }
}

}  // namespace

DeviceSpec DeviceSpec::parse(std::string_view text) {
  DeviceSpec spec;
  const auto named = [&](const DeviceKindRow& row) { return text.find(row.spelled) != text.npos; };
  if (std::ranges::count_if(kDeviceKindRows, named) > 1) {
    refuse(text, "devices of several kinds do not mix: a process has devices of one kind");
  }
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  const auto* const row = std::ranges::find(kDeviceKindRows, kind, &DeviceKindRow::spelled);
  if (row == std::end(kDeviceKindRows)) {
    refuse(text, "\"" + printable(kind, 40) + "\" is not a kind of device");
  }
  spec.kind = row->kind;
  if (!row->by_number) {
    if (colon == std::string_view::npos) refuse(text, "the number of devices is missing");
    spec.count = take_number(rest, text, "the number of devices", 1);
    take_spaces(spec, rest, text);
  } else {
    if (colon == std::string_view::npos) return spec;
    do {
      spec.gpus.push_back(take_number(rest, text, "the number of a GPU", 0));
    } while (take(rest, ','));
    for (std::size_t i = 0; i < spec.gpus.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (spec.gpus[i] == spec.gpus[j]) {
          refuse(text, "GPU " + std::to_string(spec.gpus[i]) + " is named twice");
        }
      }
    }
    if (take(rest, 'x')) {
      if (spec.gpus.size() != 1) refuse(text, "virtual devices are made on one GPU");
      spec.count = take_number(rest, text, "the number of virtual devices", 1);
      take_spaces(spec, rest, text);
    }
  }
  if (!rest.empty()) refuse(text, "\"" + printable(rest, 40) + "\" is left over");
  return spec;
}

}  // namespace shmap
