#include "tests/support/mpirun.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace shmap::test {

std::string program_for_mpirun(const std::string& name) {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  const bool there =
      std::system("command -v mpirun > /dev/null") == 0 && std::filesystem::exists(path);
  return there ? path.string() : "";
}

JobOutcome run_processes(const std::string& program, const std::string& arguments, int processes,
                         int devices) {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(name, "1", 1);
  setenv("SHMAP_DEVICES", ("cpu:" + std::to_string(devices)).c_str(), 1);
  setenv("SHMAP_WORKERS", "1", 1);
  const std::string launcher =
      processes == 1 ? "" : "mpirun --bind-to none --oversubscribe -n " + std::to_string(processes);
  const std::string command =
      "timeout 60 " + launcher + " '" + program + "' " + arguments + " 2>&1";
  JobOutcome outcome;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  for (char text[4096]; std::fgets(text, sizeof text, pipe) != nullptr;) outcome.output += text;
  outcome.status = pclose(pipe);
  return outcome;
}

}  // namespace shmap::test
