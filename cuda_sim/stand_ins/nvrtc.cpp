// NVRTC in software: compiles the source of kernels with the host's compiler, against the
// simulator's headers, into a shared object, which the simulator loads as a module.
#include <nvrtc.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern char** environ;

struct _nvrtcProgram {
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;  // names, texts
  std::string log, image;
};

namespace {

namespace fs = std::filesystem;

constexpr int kArch = 90;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// A hash of everything on which images depend besides their source: the compiler and the
// simulator's headers.
int spelling() {
  unsigned hash = 2166136261u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  };
  add(SHMAP_SIM_CXX);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(SHMAP_SIM_INCLUDE)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) add(read_file(file));
  return static_cast<int>(hash % 1000000u);
}

// The names of the kernels, which follow `extern "C" __global__ void __launch_bounds__(128)`.
std::vector<std::string> kernel_names(const std::string& source) {
  static constexpr std::string_view kBegin = "extern \"C\" __global__";
  std::vector<std::string> names;
  for (std::size_t at = source.find(kBegin); at != std::string::npos;
       at = source.find(kBegin, at)) {
    at += kBegin.size();
    std::size_t end = source.find('(', at);
    const std::size_t bounds = source.find("__launch_bounds__", at);
    if (bounds < end) end = source.find('(', source.find(')', end));
    if (end == std::string::npos) break;
    const std::size_t begin = source.find_last_of(" \n", end) + 1;
    names.push_back(source.substr(begin, end - begin));
  }
  return names;
}

// A temporary folder that is removed at the end of its scope.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "shmap_sim_XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Runs a program with its output in a file. Returns whether it exits with 0.
bool run(const std::vector<std::string>& words, const fs::path& output) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) {
    std::ofstream(output) << argv[0] << ": " << std::strerror(failed) << "\n";
    return false;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool compile(_nvrtcProgram& program) {
  const Folder folder;
  if (folder.path().empty()) {
    program.log = "no temporary folder could be made";
    return false;
  }
  for (const auto& [name, text] : program.headers) {
    const fs::path path = folder.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string text = "#include <cuda_runtime.h>\n#line 1 \"fused.cu\"\n" + program.source;
  for (const std::string& name : kernel_names(program.source))
    text += "\nSHMAP_SIM_KERNEL(" + name + ")\n";
  const fs::path source = folder.path() / "fused.cpp", image = folder.path() / "fused.so",
                 log = folder.path() / "log";
  std::ofstream(source) << text;
  // The flags of the library's own kernels, so that both compute the same bits.
  std::vector<std::string> words = {SHMAP_SIM_CXX,
                                    "-std=c++20",
                                    "-O1",
                                    "-fPIC",
                                    "-shared",
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-I" + folder.path().string(),
                                    std::string("-I") + SHMAP_SIM_INCLUDE};
#if !defined(__clang__)
  // Without this, a template constant about one image's parameters would be shared by all images.
  words.push_back("-fno-gnu-unique");
#endif
  words.insert(words.end(), {"-o", image.string(), source.string()});
  const bool good = run(words, log);
  program.log = read_file(log);
  if (good) program.image = read_file(image);
  return good && !program.image.empty();
}

template <class Body>
nvrtcResult on_program(nvrtcProgram program, Body body) {
  return program == nullptr ? NVRTC_ERROR_INVALID_PROGRAM : body(*program);
}

nvrtcResult copy(const std::string& text, char* to) {
  if (to == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  std::memcpy(to, text.data(), text.size());
  return NVRTC_SUCCESS;
}

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS:
      return "NVRTC_SUCCESS";
    case NVRTC_ERROR_INVALID_INPUT:
      return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION:
      return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION:
      return "NVRTC_ERROR_COMPILATION";
    default:
      return "NVRTC_ERROR unknown";
  }
}

// A version that no real NVRTC has. It changes with everything on which images depend, so that
// caches do not confuse images.
nvrtcResult nvrtcVersion(int* major, int* minor) {
  static const int kSpelling = spelling();
  *major = 999;
  *minor = kSpelling;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  *archs = kArch;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int count,
                               const char* const* headers, const char* const* names) {
  if (program == nullptr || source == nullptr || count < 0) return NVRTC_ERROR_INVALID_INPUT;
  *program = new _nvrtcProgram;
  (*program)->source = source;
  for (int i = 0; i < count; ++i) (*program)->headers.emplace_back(names[i], headers[i]);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  if (program == nullptr || *program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  return on_program(program, [&](_nvrtcProgram& p) {
    static constexpr std::string_view kKnown[] = {"--std=c++20", "--fmad=false",
                                                  "--gpu-architecture=sm_90"};
    for (int i = 0; i < count; ++i) {
      if (std::find(std::begin(kKnown), std::end(kKnown), options[i]) != std::end(kKnown)) continue;
      p.log = std::string("unrecognized option ") + options[i];
      return NVRTC_ERROR_INVALID_OPTION;
    }
    return compile(p) ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
  });
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  return on_program(program, [&](_nvrtcProgram& p) {
    *size = p.image.size();
    return NVRTC_SUCCESS;
  });
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  return on_program(program, [&](_nvrtcProgram& p) { return copy(p.image, cubin); });
}
// There is only one form of an image.
nvrtcResult nvrtcGetPTXSize(nvrtcProgram, size_t*) { return NVRTC_ERROR_INVALID_INPUT; }
nvrtcResult nvrtcGetPTX(nvrtcProgram, char*) { return NVRTC_ERROR_INVALID_INPUT; }

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  return on_program(program, [&](_nvrtcProgram& p) {
    *size = p.log.size() + 1;
    return NVRTC_SUCCESS;
  });
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  return on_program(program, [&](_nvrtcProgram& p) { return copy(p.log + '\0', log); });
}

}  // extern "C"
