// A library that is loaded before OpenMPI (SHMAP_MPI_PATH) in one process of a test. A signal stops
// that process after it has told the others that it ends, before it takes part in the end of MPI.
#include <mpi.h>
#include <signal.h>

#include <chrono>
#include <cstdio>

extern "C" int MPI_Finalize() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::fprintf(
      stderr, "AT fault %lld\n",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
  raise(SIGSTOP);
  return PMPI_Finalize();
}
