#include "cuda/fused/kernel_image.h"

#include <algorithm>
#include <vector>

#include "core/base/disk_cache.h"
#include "core/base/sha256.h"
#include "cuda/fused/kernel_texts.h"
#include "cuda/libraries/nvrtc_api.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

// No contraction: a product and a sum are each rounded, as they are in separate kernels.
constexpr const char* kOptions[] = {"--std=c++20", "--fmad=false"};

class Program {
 public:
  explicit Program(const std::string& source) {
    std::vector<const char*> names, texts;
    for (const KernelText& header : kernel_texts()) {
      names.push_back(header.name);
      texts.push_back(header.text);
    }
    check(nvrtc().create_program(&program_, source.c_str(), "fused.cu",
                                 static_cast<int>(names.size()), texts.data(), names.data()),
          "nvrtcCreateProgram");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { nvrtc().destroy_program(&program_); }

  nvrtcProgram get() const { return program_; }
  std::string log() const {
    std::size_t size = 0;
    if (nvrtc().log_size(program_, &size) != NVRTC_SUCCESS || size == 0) return "(no log)";
    std::string text(size, '\0');
    if (nvrtc().log(program_, text.data()) != NVRTC_SUCCESS) return "(no log)";
    text.resize(std::min(text.find('\0'), text.size()));
    return text;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

KernelImage compile(const std::string& source, const std::string& architecture) {
  const Program program(source);
  const std::string arch = "--gpu-architecture=" + architecture;
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(arch.c_str());
  const nvrtcResult status =
      nvrtc().compile_program(program.get(), static_cast<int>(options.size()), options.data());
  if (status != NVRTC_SUCCESS) {
    throw DeviceError("a fused kernel does not compile for " + architecture + " (" +
                      nvrtc().error_string(status) + "); please report it:\n" + program.log() +
                      "\nof the source\n" + source);
  }
  const bool binary = architecture.starts_with("sm_");
  std::size_t size = 0;
  check((binary ? nvrtc().cubin_size : nvrtc().ptx_size)(program.get(), &size),
        binary ? "nvrtcGetCUBINSize" : "nvrtcGetPTXSize");
  KernelImage image(size, '\0');
  check((binary ? nvrtc().cubin : nvrtc().ptx)(program.get(), image.data()),
        binary ? "nvrtcGetCUBIN" : "nvrtcGetPTX");
  return image;
}

}  // namespace

bool can_compile_kernels() {
  static const bool can = [] {
    try {
      nvrtc();
      return true;
    } catch (const DeviceError&) {
      return false;  // programs then run operation by operation, which only costs time
    }
  }();
  return can;
}

std::string architecture(int major, int minor) {
  int count = 0;
  check(nvrtc().arch_count(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<std::size_t>(count));
  check(nvrtc().archs(known.data()), "nvrtcGetSupportedArchs");
  const int wanted = 10 * major + minor;
  int best = 0;
  for (const int arch : known)
    if (arch <= wanted) best = std::max(best, arch);
  if (best == 0) {
    throw DeviceError("NVRTC " + std::to_string(nvrtc().major) + "." +
                      std::to_string(nvrtc().minor) + " compiles for no GPU as old as sm_" +
                      std::to_string(wanted) + ": use one of an older CUDA toolkit");
  }
  return (best == wanted ? "sm_" : "compute_") + std::to_string(best);
}

std::string image_key(const std::string& source, const std::string& architecture) {
  std::string key = "NVRTC " + std::to_string(nvrtc().major) + "." + std::to_string(nvrtc().minor) +
                    " " + architecture;
  for (const char* option : kOptions) key += std::string(" ") + option;
  std::string headers;
  for (const KernelText& header : kernel_texts())
    headers += std::string(header.name) + " " + sha256_hex(header.text) + "\n";
  return key + " headers " + sha256_hex(headers) + "\n" + source;
}

KernelImage compile_kernel(const std::string& source, const std::string& architecture) {
  const std::string key = image_key(source, architecture);
  const DiskCache cache("kernel", DiskCache::default_folder());
  KernelImage image;
  if (cache.load(key, &image)) return image;
  image = compile(source, architecture);
  cache.store(key, image);
  return image;
}

}  // namespace shmap::cuda
