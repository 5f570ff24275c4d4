#include "cuda/libraries/late_library.h"

#include <dlfcn.h>

#include <algorithm>

#include "core/device/at_exit.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

const env::Variable& row(env::Var var) {
  return *std::ranges::find(env::table(), var, &env::Variable::var);
}

// The path of the file that an address was loaded from.
std::string file_of(void* address, const char* fallback) {
  Dl_info found;
  return address != nullptr && dladdr(address, &found) != 0 && found.dli_fname != nullptr
             ? found.dli_fname
             : fallback;
}

}  // namespace

LateLibrary::LateLibrary(const LateLibraryInfo& info) : info_(&info) {
  const std::string path = env::text(info.path);
  if (path.empty() && dlsym(RTLD_DEFAULT, info.probe) != nullptr) {
    handle_ = RTLD_DEFAULT;
    origin_ = "this process";
    return;
  }
  const char* const only[] = {path.c_str()};
  const std::span<const char* const> names = path.empty() ? info.names : std::span(only);
  std::string tried;
  for (const char* name : names) {
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      origin_ = file_of(dlsym(handle_, info.probe), name);
      // The library's exit handlers then run after the devices' work is done.
      detail::stop_first_at_exit();
      return;
    }
    const char* said = dlerror();
    tried += std::string("\n  ") + name + ": " + (said != nullptr ? said : "no reason given");
  }
  throw DeviceError(std::string(info.what) + " is wanted and cannot be opened. Tried" +
                    (path.empty() ? "" : std::string(" (by ") + row(info.path).name + ")") + ":" +
                    tried + "\n" + remedy());
}

std::string version_text(std::size_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

void* LateLibrary::find(const char* name) const { return dlsym(handle_, name); }

void LateLibrary::throw_missing(const char* name) const {
  throw DeviceError(std::string(info_->what) + " (" + origin_ + ") has no function " + name +
                    ": it is another library, or a version that this one cannot use. " + remedy());
}

void LateLibrary::throw_version(const std::string& found, const std::string& wanted) const {
  throw DeviceError(std::string(info_->what) + " (" + origin_ + ") is version " + found + ", and " +
                    wanted + " or newer is wanted. " + remedy());
}

std::string LateLibrary::remedy() const {
  return std::string("Install ") + info_->package + ", or set " + row(info_->path).name +
         " to the library's path.";
}

}  // namespace shmap::cuda
