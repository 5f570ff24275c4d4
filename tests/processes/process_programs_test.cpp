// Programs of this tree and of users that run as several processes: the README's first one, the
// benchmark of the collectives, one that uses MPI itself, and one that was to be started by mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/mpirun.h"

namespace shmap::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

TEST(ProcessPrograms, TheFirstProgramOfTheReadme) {
  const std::string program = program_for_mpirun("hello");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed, or the examples were not built";
  const JobOutcome o = run_processes(program, "", 4, 2);
  EXPECT_EQ(o.status, 0) << o.output;
  // Each process prints its rows, and the whole picture.
  for (const char* device : {"│CPU 0,1│", "│CPU 2,3│", "│CPU 4,5│", "│CPU 6,7│"})
    EXPECT_EQ(count(o.output, device), 4) << o.output;
  for (const char* row : {"[[38. 38. 38.]\n", " [54. 54. 54.]]\n"})
    EXPECT_EQ(count(o.output, row), 2) << o.output;  // on two devices of one process
}

// The lines of the pages that begin with mpirun: those of code blocks, and one in the README's
// text.
std::vector<std::string> shown_commands(const fs::path& page) {
  std::vector<std::string> commands;
  std::ifstream file(page);
  for (std::string line; std::getline(file, line);) {
    if (page.filename() == "README.md" && line.starts_with("`mpirun "))
      line = line.substr(1, line.find('`', 1) - 1);
    if (!line.starts_with("mpirun ")) continue;
    commands.push_back(line.substr(0, line.find("   #")));
  }
  return commands;
}

// As they stand there, on a machine that has two slots.
TEST(ProcessPrograms, TheCommandsOfThePages) {
  const std::string program = program_for_mpirun("hello");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed, or the examples were not built";
  const fs::path root = SHMAP_SOURCE_FOLDER;
  for (const char* page : {"README.md", "docs/processes.md", "docs/transformer.md"}) {
    const std::vector<std::string> commands = shown_commands(root / page);
    EXPECT_FALSE(commands.empty()) << page;
    for (const std::string& command : commands)
      EXPECT_THAT(command, HasSubstr(" --oversubscribe ")) << page;
  }
  const std::string command = shown_commands(root / "README.md").at(0);
  ASSERT_EQ(shown_commands(root / "docs/processes.md").at(0), command);
  ASSERT_TRUE(command.ends_with(" ./program")) << command;
  const fs::path dir = fs::temp_directory_path() / ("shmap_" + new_report());
  fs::create_directories(dir);
  fs::create_symlink(program, dir / "program");
  std::ofstream(dir / "hosts") << "localhost slots=2\n";
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    setenv(name, "1", 1);
  for (const char* name : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"})
    setenv(name, (dir / "hosts").c_str(), 1);
  setenv("SHMAP_WORKERS", "1", 1);
  FILE* const pipe =
      popen(("cd '" + dir.string() + "' && " + with_deadline(60, new_report()) + command + " 2>&1")
                .c_str(),
            "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (char text[4096]; std::fgets(text, sizeof text, pipe) != nullptr;) output += text;
  EXPECT_EQ(pclose(pipe), 0) << output;
  EXPECT_EQ(count(output, "│CPU 6,7│"), 4) << output;
  for (const char* name : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"})
    unsetenv(name);
  fs::remove_all(dir);
}

TEST(ProcessPrograms, AMeshOfMoreDevicesThanOneProcessHas) {
  const std::string program = program_for_mpirun("hello");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed, or the examples were not built";
  const JobOutcome o = run_processes(program, "", 1, 2);
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.output, AllOf(HasSubstr("there are 2 devices"), HasSubstr("SHMAP_DEVICES=cpu:8"),
                              HasSubstr("more processes under mpirun")));
}

TEST(ProcessPrograms, Examples) {
  const std::string program = program_for_mpirun("collective_matmul");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed, or the examples were not built";
  const fs::path dir = fs::temp_directory_path() / ("shmap_" + new_report());
  fs::create_directories(dir);
  save_npy(dir / "a.npy", reshape(arange(64 * 32), {64, 32}) / 100.f);
  save_npy(dir / "b.npy", ones({32, 16}));
  const std::string files = " --lhs '" + (dir / "a.npy").string() + "' --rhs '" +
                            (dir / "b.npy").string() + "' --trace '" + (dir / "t").string() + "'";
  const JobOutcome o = run_processes(program, "--reps 1" + files, 4, 1);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_EQ(count(o.output, "largest error"), 1) << o.output;
  EXPECT_THAT(o.output, Not(HasSubstr("of raw products")));
  for (const char* part : {"t.0", "t.1", "t.2", "t.3"}) EXPECT_TRUE(fs::exists(dir / part)) << part;
  fs::remove_all(dir);
  for (const char* name : {"data_parallel", "softmax_regression", "own_primitive"}) {
    const JobOutcome other = run_processes(
        program_for_mpirun(name), std::string(name) == "data_parallel" ? "--epochs 1" : "", 4, 2);
    EXPECT_EQ(other.status, 0) << name << "\n" << other.output;
  }
}

// They check themselves; process 0 alone says what came out.
TEST(ProcessPrograms, ExamplesThatSpeakOnce) {
  for (const auto& [name, part] : {std::pair{"pipeline", " off that of a plain loop"},
                                   {"dropout", "loss before: "},
                                   {"count_communication", " bytes a device; cost_analysis has"},
                                   {"softmax_regression", "of the digits recognised"}}) {
    SCOPED_TRACE(name);
    const std::string program = program_for_mpirun(name);
    if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed, or the examples were not built";
    const JobOutcome o = run_processes(program, "", 2, 2);
    EXPECT_EQ(o.status, 0) << o.output;
    EXPECT_EQ(count(o.output, part), 1) << o.output;
  }
  const std::string llama = program_for_mpirun("llama");
  if (llama.empty()) GTEST_SKIP() << "the examples that read options were not built";
  const fs::path dir = fs::temp_directory_path() / ("shmap_" + new_report());
  JobOutcome o =
      run_processes(llama,
                    "random --out '" + dir.string() +
                        "' --layers 1 --embed 16 --heads 2 --head 8 --ff 16 --vocab 32 --dtype f32",
                    1, 1);
  ASSERT_EQ(o.status, 0) << o.output;
  o = run_processes(llama, "generate --model '" + dir.string() + "' --count 3", 2, 1);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_EQ(count(o.output, "loaded in"), 1) << o.output;
  fs::remove_all(dir);
}

// The same losses, bit for bit, as one process with as many devices.
TEST(ProcessPrograms, TheTransformer) {
  const std::string program = program_for_mpirun("transformer");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed, or the examples were not built";
  const fs::path dir = fs::temp_directory_path() / ("shmap_" + new_report());
  fs::create_directories(dir);
  std::string losses[2];
  for (const int processes : {1, 4}) {
    const fs::path file = dir / std::to_string(processes);
    const JobOutcome o = run_processes(
        program,
        "--split 2d --steps 3 --sample 0 --quiet --layers 1 --losses '" + file.string() + "'",
        processes, 8 / processes, 100);
    EXPECT_EQ(o.status, 0) << o.output;
    EXPECT_EQ(count(o.output, "8 devices\n"), 1) << o.output;
    std::ifstream in(file);
    losses[processes / 4].assign(std::istreambuf_iterator<char>(in), {});
  }
  EXPECT_EQ(count(losses[0], "\n"), 3) << losses[0];
  EXPECT_EQ(losses[0], losses[1]);
  fs::remove_all(dir);
}

class CollectivesBench : public testing::Test {
 protected:
  void SetUp() override {
    program_ = program_for_mpirun("collectives_bench");
    if (program_.empty())
      GTEST_SKIP() << "OpenMPI is not installed, or the benchmarks were not built";
  }
  void TearDown() override {
    unsetenv("SHMAP_MPI_PATH");
    unsetenv("SHMAP_SHARED_MEMORY");
  }
  std::string program_;
};

TEST_F(CollectivesBench, HasTheColumnsOfNcclTests) {
  const fs::path file = fs::temp_directory_path() / ("shmap_" + new_report() + ".json");
  const JobOutcome o = run_processes(
      program_, "-b 1K -e 4K -f 4 -n 3 -w 1 -g 2 -c 1 -J '" + file.string() + "'", 2, 1);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_EQ(count(o.output, "# 2 processes, 4 devices"), 1) << o.output;  // process 0 alone prints
  EXPECT_EQ(count(o.output, "#wrong"), 6) << o.output;
  EXPECT_THAT(o.output,
              ContainsRegex("size\\(B\\) +count +type +redop +time\\(us\\) +algbw +busbw +#wrong"));
  for (const char* row : {" 1024 +256 +int32 +sum +[0-9.]+ +[0-9.]+ +[0-9.]+ +0\n",
                          " 4096 +1024 +int32 +none +[0-9.]+ +[0-9.]+ +[0-9.]+ +0\n"})
    EXPECT_THAT(o.output, ContainsRegex(row));
  EXPECT_THAT(o.output, HasSubstr("# wrong values: 0\n"));
  std::ifstream in(file);
  const std::string rows{std::istreambuf_iterator<char>(in), {}};
  for (const char* op :
       {"all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast"}) {
    EXPECT_EQ(count(o.output, std::string("# ") + op + "\n"), 1) << o.output;
    EXPECT_EQ(count(rows, std::string("\"op\": \"") + op + "\""), 2) << rows;
  }
  // As in nccl-tests, count is what a call of NCCL would get: of one device where each has a part.
  EXPECT_EQ(count(rows, "\"size\": 1024, \"count\": 256, "), 3) << rows;
  EXPECT_EQ(count(rows, "\"size\": 1024, \"count\": 64, "), 3) << rows;
  fs::remove(file);
}

// 25 elements are no multiple of 3 devices. The columns tell what is communicated.
TEST_F(CollectivesBench, SizesThatTheDevicesDoNotDivide) {
  JobOutcome o = run_processes(program_, "-b 100 -e 100 -n 1 -w 0 -g 1", 3, 1);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_EQ(count(o.output, " 100           25    int32"), 3) << o.output;
  EXPECT_EQ(count(o.output, " 96            8    int32"), 3) << o.output;
  o = run_processes(program_, "all_gather -b 4 -e 4 -n 1 -w 0 -g 1", 3, 1);
  EXPECT_EQ(count(o.output, " 12            1    int32"), 1) << o.output;
}

TEST_F(CollectivesBench, UncheckedValuesAreNotCalledRight) {
  const fs::path file = fs::temp_directory_path() / ("shmap_" + new_report() + ".json");
  const JobOutcome o =
      run_processes(program_, "sendrecv -b 8 -e 8 -n 1 -w 0 -c 0 -J '" + file.string() + "'", 1, 2);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, ContainsRegex(" 8 +2 +int32 +none +[0-9.]+ +[0-9.]+ +[0-9.]+ +N/A\n"));
  EXPECT_THAT(o.output, HasSubstr("# wrong values: N/A\n"));
  std::ifstream in(file);
  const std::string rows{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(count(rows, "\"wrong\": null}"), 1) << rows;
  fs::remove(file);
}

// The values stay exact in one byte.
TEST_F(CollectivesBench, ManyDevices) {
  JobOutcome o =
      run_processes(program_, "all_reduce -b 260 -e 260 -n 1 -w 0 -o all -d int8", 1, 100);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, HasSubstr("# wrong values: 0\n"));
  o = run_processes(program_, "all_reduce -b 260 -e 260 -n 1 -w 0 -o avg -d int8", 1, 128);
  EXPECT_TRUE(WIFEXITED(o.status) && WEXITSTATUS(o.status) == 1) << o.status;
  EXPECT_THAT(o.output, HasSubstr("-o avg: the sum of 128 devices' values does not fit in a byte"));
}

TEST_F(CollectivesBench, OneProcessPrintsHelpAndFaultsOfOptions) {
  JobOutcome o = run_processes(program_, "--help", 3, 1);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_EQ(count(o.output, "Usage:"), 1) << o.output;
  o = run_processes(program_, "-c 2", 3, 1);
  EXPECT_NE(o.status, 0);
  EXPECT_EQ(count(o.output, "-c: 2 not in {0,1}"), 1) << o.output;
}

// Each ends at once, with a message that says what is wanted.
TEST_F(CollectivesBench, OptionsThatMeanNothingAreRefused) {
  const std::pair<const char*, const char*> calls[] = {
      {"-b 0", "-b: Value 0 not in range"},
      {"-e 2T", "-e: Value 2199023255552 not in range"},
      {"-b 4K -e 1K", "-e: 1024 bytes are fewer than the 4096 of -b"},
      {"-f 1", "-f: Value 1 not in range"},
      {"allreduce", "allreduce not in {all_reduce,all_gather,"},
      {"-d int4", "-d: int4 not in {bfloat16,"},
      {"-c 2", "-c: 2 not in {0,1}"},
      {"-r 2 -b 8 -e 8", "-r: 2 is no device: there are 2, from 0"},
      {"sendrecv -b 8 -e 8 -n 1 -J /dev/null/rows.json",
       "-J: /dev/null/rows.json cannot be written"}};
  for (const auto& [options, message] : calls) {
    SCOPED_TRACE(options);
    const JobOutcome o = run_processes(program_, options, 1, 2, 20);
    EXPECT_TRUE(WIFEXITED(o.status) && WEXITSTATUS(o.status) != 0 && WEXITSTATUS(o.status) != 124)
        << o.status;
    EXPECT_THAT(o.output, HasSubstr(message));
  }
}

TEST_F(CollectivesBench, ReducesByEachOperatorInEachDtype) {
  const JobOutcome o =
      run_processes(program_, "-b 64 -e 64 -n 1 -w 0 -g 2 -o all -d all -r 3", 2, 1, 100);
  EXPECT_EQ(o.status, 0) << o.output;
  for (const char* op : {"sum", "prod", "min", "max", "avg"}) {
    for (const char* type : {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float",
                             "double", "bfloat16"})
      EXPECT_EQ(
          count(o.output, std::string(" ") + type + " " + std::string(6 - strlen(op), ' ') + op), 2)
          << type << " " << op << "\n"
          << o.output;
  }
  EXPECT_EQ(count(o.output, " none "), 4 * 10) << o.output;
  EXPECT_THAT(o.output, HasSubstr("# wrong values: 0\n"));
}

TEST_F(CollectivesBench, AWrongValueIsCountedAndIsTheExitCode) {
  const std::string library = fs::path(program_).parent_path() / "libprocess_changes_data.so";
  if (!fs::exists(library)) GTEST_SKIP() << library << " was not built";
  setenv("SHMAP_MPI_PATH", library.c_str(), 1);
  setenv("SHMAP_SHARED_MEMORY", "0", 1);  // all through MPI
  const JobOutcome o = run_processes(program_, "sendrecv -b 64K -e 64K -n 1 -w 0 -g 1", 2, 1);
  EXPECT_TRUE(WIFEXITED(o.status) && WEXITSTATUS(o.status) == 1) << o.status << "\n" << o.output;
  EXPECT_THAT(o.output, ContainsRegex("# wrong values: [1-9]"));
}

TEST(ProcessPrograms, OneThatUsesMpiItself) {
  const std::string program = program_for_mpirun("process_own_mpi");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed";
  JobOutcome o = run_processes(program, "", 2, 2);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_EQ(count(o.output, "the sum is 4\n"), 2) << o.output;
  EXPECT_EQ(count(o.output, "MPI's own sum is 2, and MPI had ended: 0\n"), 2) << o.output;
  EXPECT_THAT(o.output, Not(HasSubstr("shmap:")));
  o = run_processes(program, "single", 2, 2);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_THAT(o.output, AllOf(HasSubstr("refused: MPI was initialised by the program"),
                              HasSubstr("MPI_THREAD_MULTIPLE"), Not(HasSubstr("the sum is"))));
}

// A launcher that gives its processes the variables of PMIx alone: MPI tells how many there are.
TEST(ProcessPrograms, AJobWhoseLauncherSetsVariablesOfPmixAlone) {
  const std::string program = program_for_mpirun("hello");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed, or the examples were not built";
  std::string without = "env";
  for (const char* name : {"SIZE", "RANK", "LOCAL_RANK", "LOCAL_SIZE"})
    without += std::string(" -u OMPI_COMM_WORLD_") + name;
  for (const int processes : {1, 4}) {
    SCOPED_TRACE(processes);
    setenv("SHMAP_DEVICES", ("cpu:" + std::to_string(8 / processes)).c_str(), 1);
    setenv("SHMAP_WORKERS", "1", 1);
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
      setenv(name, "1", 1);
    FILE* const pipe =
        popen((with_deadline(60, new_report()) + "mpirun --bind-to none --oversubscribe -n " +
               std::to_string(processes) + " " + without + " '" + program + "' 2>&1")
                  .c_str(),
              "r");
    ASSERT_NE(pipe, nullptr);
    std::string output;
    for (char text[4096]; std::fgets(text, sizeof text, pipe) != nullptr;) output += text;
    EXPECT_EQ(pclose(pipe), 0) << output;
    EXPECT_EQ(count(output, "│CPU 6,7│"), processes) << output;
  }
}

// A program's own MPI_Finalize waits no longer for another process than the library's.
TEST(ProcessPrograms, OneThatEndsMpiItselfAndAnotherDoesNotCome) {
  const std::string program = program_for_mpirun("process_own_mpi");
  if (program.empty()) GTEST_SKIP() << "OpenMPI is not installed";
  setenv("SHMAP_COLLECTIVE_WARN_SEC", "1", 1);
  setenv("SHMAP_COLLECTIVE_TIMEOUT_SEC", "3", 1);
  for (const char* fault : {"stuck", "stopped", "stopped_inside"}) {
    SCOPED_TRACE(fault);
    const JobOutcome o = run_processes(program, fault, 2, 2, 30);
    EXPECT_EQ(o.report, "");
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.output,
                AllOf(HasSubstr(std::string(fault) == "stopped_inside"
                                    ? "have said that they end, and MPI_Finalize waits since"
                                    : "process 0 calls MPI_Finalize, and it waits"),
                      HasSubstr("process 1 (pid "), HasSubstr("has not ended"),
                      HasSubstr("Giving up"), Not(HasSubstr("MPI's own sum is"))));
    EXPECT_EQ(o.output.find("which a signal has stopped") == std::string::npos,
              std::string(fault) == "stuck");
  }
  JobOutcome o = run_processes(program, "goes_on", 2, 2, 30);
  EXPECT_EQ(o.status, 0) << o.output;
  EXPECT_EQ(count(o.output, "MPI's own sum is 2, and MPI had ended: 0\n"), 2) << o.output;
  EXPECT_THAT(o.output, Not(HasSubstr("shmap:")));
  // After an error that all have caught, MPI ends. The exit code still tells of the error.
  o = run_processes(program, "caught", 2, 2, 30);
  EXPECT_NE(o.status, 0);
  EXPECT_EQ(o.report, "");
  EXPECT_EQ(count(o.output, "out of step") > 0, true) << o.output;
  EXPECT_EQ(count(o.output, "MPI's own sum is 2, and MPI had ended: 0\n"), 2) << o.output;
  unsetenv("SHMAP_COLLECTIVE_WARN_SEC");
  unsetenv("SHMAP_COLLECTIVE_TIMEOUT_SEC");
}

}  // namespace
}  // namespace shmap::test
