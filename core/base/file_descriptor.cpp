#include "core/base/file_descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "shmap/error.h"

namespace shmap {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

std::string errno_text(int error) { return std::generic_category().message(error); }

void throw_errno(std::string_view what, std::string_view did) {
  const int error = errno;
  throw Error(std::string(what) + ": " + std::string(did) + ": " + errno_text(error));
}

}  // namespace shmap
