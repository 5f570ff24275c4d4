// Programs of several processes, run by tests under mpirun.
#pragma once
#include <string>

namespace shmap::test {

// The program of that name beside the running one; "" where it or mpirun is not there.
std::string program_for_mpirun(const std::string& name);

struct JobOutcome {
  std::string output;  // of all processes, stdout and stderr
  int status = -1;     // as of pclose
};
// Runs `program arguments` as so many processes with so many CPU devices each, for a minute at the
// most; one process alone, without mpirun.
JobOutcome run_processes(const std::string& program, const std::string& arguments, int processes,
                         int devices);

}  // namespace shmap::test
