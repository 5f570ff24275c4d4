#include "core/processes/exchange_label.h"

#include <algorithm>
#include <cstring>

namespace shmap {
namespace {

void copy_text(char* to, std::size_t room, std::string_view from) {
  const std::size_t n = std::min(from.size(), room - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

}  // namespace

void ExchangeLabel::set(const char* o, std::string_view a, std::string_view t, const char* f,
                        std::uint32_t l, std::int64_t n) {
  copy_text(op, sizeof op, o);
  copy_text(axes, sizeof axes, a);
  copy_text(dtype, sizeof dtype, t);
  std::string_view path = f != nullptr ? f : "";
  if (path.size() >= sizeof file) path.remove_prefix(path.size() - sizeof file + 1);
  copy_text(file, sizeof file, path);
  line = l;
  bytes = n;
}

std::string ExchangeLabel::text() const {
  std::string s = op;
  if (dtype[0] != 0) s += std::string(" of ") + dtype;
  s += ", " + std::to_string(bytes) + " bytes a device";
  if (axes[0] != 0) s += std::string(", over ") + axes;
  if (file[0] != 0) s += std::string(" at ") + file + ":" + std::to_string(line);
  return s;
}

}  // namespace shmap
