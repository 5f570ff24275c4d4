// gpu_or_skip [--gpus n] <program> [arguments...]: runs the program where a GPU answers, or n of
// them, and otherwise ends with the status by which CTest knows a skipped test, saying why. If
// GPU_ANSWERS is set, a GPU is known to answer, and the driver is not opened once more to ask.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/device/registry.h"
#include "shmap/device.h"

namespace {

bool a_gpu_answers() {
  for (const shmap::BackendFactory& factory : shmap::built_in_backends())
    if (factory.kind == shmap::DeviceKind::cuda && factory.default_devices()[0] != '\0')
      return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  int at = 1, gpus = 1;
  if (argc > 2 && std::strcmp(argv[1], "--gpus") == 0) {
    gpus = std::atoi(argv[2]);
    at = 3;
  }
  if (argc <= at || gpus < 1) {
    std::fprintf(stderr, "usage: gpu_or_skip [--gpus n] <program> [arguments...]\n");
    return 2;
  }
  if (std::getenv("GPU_ANSWERS") == nullptr && !a_gpu_answers()) {
    std::printf("skipped: no GPU answers\n");
    return 77;
  }
  // With SHMAP_DEVICES=cuda, which tests of several GPUs set, each GPU is a device.
  if (const auto found = gpus > 1 ? static_cast<int>(shmap::devices().size()) : 1; found < gpus) {
    std::printf("skipped: %d GPUs are wanted, and %d is there\n", gpus, found);
    return 77;
  }
  execv(argv[at], argv + at);
  std::perror(argv[at]);
  return 2;
}
