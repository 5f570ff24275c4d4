// Job: the processes that a launcher (mpirun, srun) started together, as its variables tell of it.
#pragma once
#include <string>

namespace shmap {

struct Job {
  int size = 1;             // processes; 0: several, and the launcher does not say how many
  int rank = 0;             // which of them this is; -1 where the launcher does not say
  int node_rank = -1;       // among those of its node; -1 where the launcher does not say
  std::string launcher;     // "mpirun"
  std::string variable;     // what says so: "OMPI_COMM_WORLD_SIZE=4"
  bool has_server = false;  // the launcher left an address by which the processes can meet

  bool is_several() const { return size != 1; }
  // "this process is number 2 of 4 that mpirun started (OMPI_COMM_WORLD_SIZE=4)"
  std::string text() const;
};

// Of this process, by the variables of OpenMPI, MVAPICH, PMI, PMIx, Slurm and torchrun. A batch
// script of Slurm is one process, and so is mpirun -n 1 in a job on several nodes.
Job job_of_environment();

}  // namespace shmap
