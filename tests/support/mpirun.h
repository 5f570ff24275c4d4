// Programs of several processes, run by tests under mpirun.
#pragma once
#include <filesystem>
#include <string>

namespace shmap::test {

// The program of that name beside the running one; "" where it or mpirun is not there.
std::string program_for_mpirun(const std::string& name);

struct JobOutcome {
  std::string output;  // of all processes, stdout and stderr
  int status = -1;     // as of pclose
  int left = 0;        // processes of the job that live on, a second after mpirun has ended
  std::string report;  // a file: what the processes were doing at the deadline; "" where they ended
};
// The prefix of a shell command that must end after so many seconds: scripts/with_deadline, which
// then writes `report`, or `timeout` if Python is missing.
std::string with_deadline(int seconds, const std::string& report);
// A file to which the processes of a job write their stderr, past mpirun: that of OpenMPI 4.1.4
// shows nothing while it ends the processes of a job, and loses some of what they write then.
class StderrFile {
 public:
  StderrFile();
  ~StderrFile();
  StderrFile(const StderrFile&) = delete;
  StderrFile& operator=(const StderrFile&) = delete;
  // The part of a shell command between mpirun's options and the program.
  std::string words() const;
  // What the processes have written so far.
  std::string text() const;

 private:
  std::filesystem::path path_;
};
// A file name in the working directory that no other call returned.
std::string new_report();
// Runs `program arguments` in that many processes with that many CPU devices each, for at most
// `seconds`; a single process runs without mpirun.
JobOutcome run_processes(const std::string& program, const std::string& arguments, int processes,
                         int devices, int seconds = 60);

}  // namespace shmap::test
