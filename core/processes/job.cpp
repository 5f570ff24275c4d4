#include "core/processes/job.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace shmap {
namespace {

// The variables that a launcher sets for each process that it starts.
struct Launcher {
  const char* name;
  const char* size;  // the variable with the number of processes
  const char* rank;  // the variable with this process's rank
  const char* node_rank;
  const char* node_size;  // or null
  const char* mark;  // a variable that must be set too, where `size` and `rank` are common names;
                     // or null
};

// The innermost launcher first: mpirun in a Slurm job starts its helpers by srun, whose variables
// its processes see too. Slurm's variables here are those of a step, which srun starts;
// SLURM_NTASKS is also set in a batch script, which is one process.
constexpr Launcher kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", nullptr},
    {"mpirun", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr},
    {"torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", nullptr, nullptr},
};

// -1 where the variable is unset or not a number.
int number_in(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return -1;
  const std::string_view digits(text);
  int n = -1;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return error == std::errc() && end == digits.data() + digits.size() ? n : -1;
}

}  // namespace

std::string Job::text() const {
  const std::string who = rank < 0 ? "one" : "number " + std::to_string(rank);
  const std::string all = size != 0 ? std::to_string(size) : rank == 0 ? "one or more" : "several";
  return "this process is " + who + " of " + all + " that " + launcher + " started (" + variable +
         ")";
}

Job job_of_environment() {
  Job job;
  job.has_server = std::getenv("PMIX_NAMESPACE") != nullptr || std::getenv("PMI_FD") != nullptr;
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.mark != nullptr && std::getenv(launcher.mark) == nullptr) continue;
    const int size = number_in(launcher.size);
    if (size < 0) continue;
    if (size <= 1) return job;
    job.size = size;
    job.rank = number_in(launcher.rank);
    job.node_rank = number_in(launcher.node_rank);
    if (launcher.node_size != nullptr) job.node_size = number_in(launcher.node_size);
    job.launcher = launcher.name;
    job.variable = std::string(launcher.size) + "=" + std::to_string(size);
    return job;
  }
  // A launcher with only PMIx variables does not give the number of processes, which MPI then
  // tells. The first of several has the same variables as one that was started alone.
  const char* const name = std::getenv("PMIX_NAMESPACE");
  if (const int rank = number_in("PMIX_RANK"); rank > 0 || (rank == 0 && name != nullptr)) {
    job.size = 0;
    job.rank = rank;
    job.launcher = "a launcher";
    job.variable = "PMIX_RANK=" + std::to_string(rank);
    if (rank == 0) job.variable += std::string(", PMIX_NAMESPACE=") + name;
  }
  return job;
}

}  // namespace shmap
