"""Conan 2 recipe: `conan create . --build=missing` makes the package from this tree."""

import re
from pathlib import Path

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy

required_conan_version = ">=2.0"


class Shmap(ConanFile):
    name = "shmap"
    license = "Apache-2.0"
    description = "A distributed array runtime: shard_map, collectives and sharded arrays in C++20"
    topics = ("arrays", "distributed", "hpc", "autodiff")
    package_type = "library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "fPIC": [True, False], "with_cuda": [True, False]}
    default_options = {"shared": True, "fPIC": True, "with_cuda": False, "fmt/*:header_only": True}
    exports_sources = (
        "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "core/*", "collectives/*", "overlap/*",
        "shard_map/*", "cuda/*", "third_party/*")

    def set_version(self):
        text = (Path(self.recipe_folder) / "CMakeLists.txt").read_text()
        self.version = re.search(r"\n  VERSION ([0-9.]+)\n", text).group(1)

    def requirements(self):
        # Used in .cpp files alone. What else speeds the library up (oneDNN, OpenBLAS, Highway, hwloc,
        # OpenMPI) it takes from the system, where it is there.
        self.requires("fmt/[>=9.1 <12]", visible=False)

    def configure(self):
        if self.options.shared:
            self.options.rm_safe("fPIC")

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # nothing is written into the tree
        toolchain.variables["SHMAP_BUILD_TESTS"] = False
        toolchain.variables["SHMAP_BUILD_BENCH"] = False
        toolchain.variables["SHMAP_BUILD_EXAMPLES"] = False
        toolchain.variables["SHMAP_WERROR"] = False
        toolchain.variables["SHMAP_UNITY"] = True  # half of the time: nobody edits sources there
        toolchain.variables["SHMAP_WITH_CUDA"] = "ON" if self.options.with_cuda else "OFF"
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, str(Path(self.package_folder) / "licenses"))
        CMake(self).install()

    def package_info(self):
        # The package's own files for CMake know what a static library needs besides.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append("lib/cmake/shmap")
        self.cpp_info.libs = ["shmap"]
        self.cpp_info.system_libs = ["pthread", "dl"]
