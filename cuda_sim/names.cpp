// The names of kernels, from the symbol tables of the loaded files. dladdr() knows only exported
// functions, and kernels are seldom exported.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <unordered_map>

#include "runtime.h"

namespace shmap_sim {
namespace {

struct Symbols {
  std::map<std::uintptr_t, std::string> functions;  // by offset from where the file is loaded
};

template <class T>
bool read_at(std::ifstream& file, std::uint64_t offset, T* out, std::size_t count) {
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(count * sizeof(T)));
  return file.good();
}

Symbols read_symbols(const std::string& path) {
  Symbols result;
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) header;
  if (!file || !read_at(file, 0, &header, 1)) return result;
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  if (sections.empty() || !read_at(file, header.e_shoff, sections.data(), sections.size())) {
    return result;
  }
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    std::vector<ElfW(Sym)> symbols(section.sh_size / sizeof(ElfW(Sym)));
    const auto& names = sections[section.sh_link];
    std::vector<char> text(names.sh_size + 1, '\0');
    if (!read_at(file, section.sh_offset, symbols.data(), symbols.size()) ||
        !read_at(file, names.sh_offset, text.data(), names.sh_size)) {
      continue;
    }
    for (const auto& symbol : symbols) {
      if ((symbol.st_info & 15) != STT_FUNC || symbol.st_value == 0) continue;
      if (symbol.st_name < names.sh_size) {
        result.functions.emplace(symbol.st_value, text.data() + symbol.st_name);
      }
    }
  }
  return result;
}

std::string demangle(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  if (status != 0 || text == nullptr) return name;
  std::string result = text;
  std::free(text);
  return result;
}

std::string find_name(const void* function) {
  Dl_info info = {};
  struct link_map* map = nullptr;
  if (dladdr1(function, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return "";
  if (info.dli_sname != nullptr && info.dli_saddr == function) return demangle(info.dli_sname);
  static auto& files = *new std::map<std::string, Symbols>;  // never destroyed, since kernels may
                                                             // run until the process ends
  const std::string path = map == nullptr || *map->l_name == '\0' ? "/proc/self/exe" : map->l_name;
  auto known = files.find(path);
  if (known == files.end()) known = files.emplace(path, read_symbols(path)).first;
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(function) - (map == nullptr ? 0 : map->l_addr);
  const auto found = known->second.functions.find(offset);
  return found == known->second.functions.end() ? "" : demangle(found->second.c_str());
}

}  // namespace

// The caller holds the runtime's mutex.
std::string name_of_function(const void* function) {
  static auto& names = *new std::unordered_map<const void*, std::string>;
  const auto known = names.find(function);
  if (known != names.end()) return known->second;
  std::string name = find_name(function);
  if (name.empty()) {
    char text[32];
    std::snprintf(text, sizeof(text), "kernel@%p", function);
    name = text;
  }
  return names.emplace(function, std::move(name)).first->second;
}

}  // namespace shmap_sim
