#include "tests/support/mpirun.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace shmap::test {

std::string program_for_mpirun(const std::string& name) {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  const bool there =
      std::system("command -v mpirun > /dev/null") == 0 && std::filesystem::exists(path);
  return there ? path.string() : "";
}

std::string with_deadline(int seconds, const std::string& report) {
  static const bool has_python = std::system("command -v python3 > /dev/null") == 0;
  if (!has_python) return "timeout " + std::to_string(seconds) + " ";
  return std::string("'" SHMAP_WITH_DEADLINE "' ") + std::to_string(seconds) + " '" + report + "' ";
}

StderrFile::StderrFile()
    : path_(std::filesystem::temp_directory_path() / ("shmap_stderr_of." + new_report())) {}

StderrFile::~StderrFile() {
  std::error_code none;
  std::filesystem::remove(path_, none);
}

std::string StderrFile::words() const {
  return "sh -c 'exec \"$0\" \"$@\" 2>>\"" + path_.string() + "\"' ";
}

std::string StderrFile::text() const {
  std::ifstream in(path_);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string new_report() {
  static int count = 0;
  return "stuck." + std::to_string(getpid()) + "." + std::to_string(++count) + ".txt";
}

// The processes in whose environment `mark` stands.
static int count_marked(const std::string& mark) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    for (std::string variable; std::getline(in, variable, '\0');) count += variable == mark;
  }
  return count;
}

JobOutcome run_processes(const std::string& program, const std::string& arguments, int processes,
                         int devices, int seconds) {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(name, "1", 1);
  setenv("SHMAP_DEVICES", ("cpu:" + std::to_string(devices)).c_str(), 1);
  setenv("SHMAP_WORKERS", "1", 1);
  const StderrFile said;
  const std::string launcher = processes == 1 ? ""
                                              : "mpirun --bind-to none --oversubscribe -n " +
                                                    std::to_string(processes) + " " + said.words();
  JobOutcome outcome;
  const std::string report = new_report();
  setenv("SHMAP_TEST_JOB", report.c_str(), 1);
  const std::string command =
      with_deadline(seconds, report) + launcher + " '" + program + "' " + arguments + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  for (char text[4096]; std::fgets(text, sizeof text, pipe) != nullptr;) outcome.output += text;
  outcome.status = pclose(pipe);
  outcome.output += said.text();
  const std::string mark = "SHMAP_TEST_JOB=" + report;
  for (int i = 0; i < 20 && (outcome.left = count_marked(mark)) > 0; ++i) usleep(50'000);
  if (std::filesystem::exists(report)) outcome.report = report;
  return outcome;
}

}  // namespace shmap::test
