#include "shmap/error.h"

namespace shmap {

std::string SourceLine::str() const {
  return file == nullptr ? std::string() : std::string(file) + ":" + std::to_string(line);
}

}  // namespace shmap
