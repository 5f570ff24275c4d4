// process_own_mpi [single]: a program that uses MPI itself, which it begins before the library and
// ends after it. With `single` it asks MPI for one thread alone, which the library cannot work
// with.
#include <mpi.h>

#include <cstdio>
#include <string>

#include "shmap/shmap.h"

using namespace shmap;

int main(int argc, char** argv) {
  const bool single = argc > 1 && std::string(argv[1]) == "single";
  int level = 0;
  MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
  int status = 0;
  try {
    const auto n = static_cast<int>(devices().size());
    const Mesh mesh = make_mesh({n}, "i");
    const auto total = shard_map([](Array b) { return psum(b, "i"); }, mesh, {P("i")}, P());
    std::printf("the sum is %g\n", static_cast<double>(total(ones({n})).to_vector<float>()[0]));
  } catch (const Error& e) {
    std::printf("refused: %s\n", e.what());
  }
  int mine = 1, sum = 0, finalized = 1;
  MPI_Finalized(&finalized);
  if (finalized == 0) {
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    status = MPI_Finalize() == MPI_SUCCESS ? 0 : 2;
  }
  std::printf("MPI's own sum is %d, and MPI had ended: %d\n", sum, finalized);
  return status;
}
