// process_own_mpi [fault]: a program that uses MPI itself, which it begins before the library and
// ends after it.
//
// single: it asks MPI for one thread alone, which the library cannot work with. goes_on: it sleeps
// after MPI_Finalize, for longer than the timeout. In process 1: stuck, stopped: it loops or is
// stopped before MPI_Finalize; stopped_inside: in MPI_Finalize, after the library has told the
// others that this process ends; caught: it runs another collective, and all catch the error.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "shmap/shmap.h"

using namespace shmap;

namespace {

bool stops_inside = false;

// MPI_Finalize deletes the attributes of MPI_COMM_SELF, the oldest last. So this one is deleted
// after the library's.
void set_oldest_attribute() {
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(
      MPI_COMM_NULL_COPY_FN,
      [](MPI_Comm, int, void*, void*) {
        if (stops_inside) raise(SIGSTOP);
        return MPI_SUCCESS;
      },
      &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "";
  int level = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, fault == "single" ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE,
                  &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  set_oldest_attribute();
  int status = 0;
  try {
    const auto n = static_cast<int>(devices().size());
    const Mesh mesh = make_mesh({n}, "i");
    const auto total = shard_map([](Array b) { return psum(b, "i"); }, mesh, {P("i")}, P());
    std::printf("the sum is %g\n", static_cast<double>(total(ones({n})).to_vector<float>()[0]));
    if (fault == "caught") {
      const auto other = shard_map([](Array b) { return pmax(b, "i"); }, mesh, {P("i")}, P());
      (rank == 1 ? other(ones({n})) : total(ones({n}))).block_until_ready();
    }
  } catch (const Error& e) {
    std::printf("refused: %s\n", e.what());
  }
  std::fflush(stdout);
  int mine = 1, sum = 0, finalized = 1;
  MPI_Finalized(&finalized);
  if (finalized == 0) {
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 1 && fault == "stuck")
      for (std::atomic<unsigned> times{0};;) times.fetch_add(1);
    if (rank == 1 && fault == "stopped") raise(SIGSTOP);
    stops_inside = rank == 1 && fault == "stopped_inside";
    status = MPI_Finalize() == MPI_SUCCESS ? 0 : 2;
  }
  if (fault == "goes_on") sleep(5);
  std::printf("MPI's own sum is %d, and MPI had ended: %d\n", sum, finalized);
  std::fflush(stdout);
  // At the first exit code that is not 0 mpirun ends the job, perhaps while others still finalize.
  if (fault == "caught") sleep(2);
  return status;
}
