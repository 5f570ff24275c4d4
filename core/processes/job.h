// Job: the processes that a launcher (mpirun, srun) started together, as given by its environment
// variables.
#pragma once
#include <string>

namespace shmap {

struct Job {
  int size = 1;             // number of processes; 0: several, but the launcher does not give the
                            // number
  int rank = 0;             // this process's rank; -1 where the launcher does not give it
  int node_rank = -1;       // rank among the processes of its node; -1 where the launcher does not
                            // give it
  int node_size = -1;       // number of processes of its node; -1 where the launcher does not give
                            // it
  std::string launcher;     // "mpirun"
  std::string variable;     // the variable and value that say so: "OMPI_COMM_WORLD_SIZE=4"
  bool has_server = false;  // the launcher left an address by which the processes can meet

  bool is_several() const { return size != 1; }
  // "this process is number 2 of 4 that mpirun started (OMPI_COMM_WORLD_SIZE=4)"
  std::string text() const;
};

// The job of this process, from the variables of OpenMPI, MVAPICH, PMI, PMIx, Slurm and torchrun. A
// batch script of Slurm is one process, and so is mpirun -n 1 in a job on several nodes.
Job job_of_environment();

}  // namespace shmap
