// A description of what a process does in an exchange, for the error of a process that does
// something else.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap {

struct ExchangeLabel {
  char op[24] = {};
  char axes[24] = {};
  char dtype[8] = {};
  char file[40] = {};
  std::uint32_t line = 0;
  std::int64_t bytes = 0;  // of a device's block
  void set(const char* op, std::string_view axes, std::string_view dtype, const char* file,
           std::uint32_t line, std::int64_t bytes);
  std::string text() const;  // "psum of f32, 4096 bytes a device, over ('i',)\n  at a.cpp:12"
};

}  // namespace shmap
