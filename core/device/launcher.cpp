#include "core/device/launcher.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/env.h"
#include "shmap/error.h"

namespace shmap {
namespace {

// What a launcher tells each process that it starts.
struct Launcher {
  const char* name;
  const char* size;  // the variable that says how many processes it started
  const char* rank;  // and which of them this is
};

// From the inside out: mpirun in a job of Slurm starts its own helpers by srun, whose variables its
// processes see too. Slurm's are those of a step, which srun starts; SLURM_NTASKS is set in a batch
// script as well, which is one process.
constexpr Launcher kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
    {"mpirun", "PMI_SIZE", "PMI_RANK"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
};

// -1 where it is unset or no number.
int number_in(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return -1;
  const std::string_view digits(text);
  int n = -1;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return error == std::errc() && end == digits.data() + digits.size() ? n : -1;
}

[[noreturn]] void refuse(const std::string& who, const std::string& variables) {
  throw DeviceError(
      who + " (" + variables +
      "), and this version of the library does not join processes: each would take itself for the "
      "only one, and none would see the others' devices. Start one process, which drives as many "
      "devices as SHMAP_DEVICES says; or set SHMAP_ALONE=1 where each process is to work for "
      "itself.");
}

}  // namespace

void refuse_several_processes() {
  if (env::flag(env::Var::alone)) return;
  for (const Launcher& launcher : kLaunchers) {
    const int size = number_in(launcher.size);
    if (size < 0) continue;
    if (size <= 1) return;
    const int rank = number_in(launcher.rank);
    refuse("this process is " + (rank < 0 ? std::string("one") : "number " + std::to_string(rank)) +
               " of " + std::to_string(size) + " that " + launcher.name + " started",
           std::string(launcher.size) + "=" + std::to_string(size));
  }
  // A launcher of PMIx alone does not say how many there are.
  if (const int rank = number_in("PMIX_RANK"); rank > 0) {
    refuse("this process is number " + std::to_string(rank) + " of several that a launcher started",
           "PMIX_RANK=" + std::to_string(rank));
  }
}

}  // namespace shmap
