"""What `conan create . -tf tests/install/conan` does with the package that it has made: builds the newcomer's program
against it, and compares what the program prints with what it is to print."""

import os
import subprocess
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class Newcomer(ConanFile):
    settings = "os", "compiler", "build_type", "arch"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # nothing is written into the tree
        toolchain.generate()

    def _program(self):
        return Path(self.recipe_folder).parent / "newcomer"

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=str(self._program()))
        cmake.build()

    def test(self):
        printed = subprocess.run([Path(self.cpp.build.bindir).absolute() / "newcomer"], check=True, text=True,
                                 stdout=subprocess.PIPE, env={**os.environ, "SHMAP_DEVICES": "cpu:8"}).stdout
        if printed != (self._program() / "expected.txt").read_text():
            raise ConanException(f"the program printed\n{printed}")
