// gpu_or_skip <program> [arguments...]: runs the program where a GPU answers, and otherwise ends
// with the status by which CTest knows a skipped test, saying why.
#include <unistd.h>

#include <cstdio>

#include "core/device/registry.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: gpu_or_skip <program> [arguments...]\n");
    return 2;
  }
  for (const shmap::BackendFactory& factory : shmap::built_in_backends()) {
    if (factory.kind != shmap::DeviceKind::cuda || factory.default_devices()[0] == '\0') continue;
    execv(argv[1], argv + 1);
    std::perror(argv[1]);
    return 2;
  }
  std::printf("skipped: no GPU answers\n");
  return 77;
}
