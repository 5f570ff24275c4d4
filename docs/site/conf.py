"""Sphinx's configuration for the site; scripts/build_docs runs it over the pages that it has collected."""

import re
from pathlib import Path

_cmake = Path(__file__).with_name("CMakeLists.txt.project").read_text(encoding="utf-8")

project = "shmap"
author = "the authors of shmap"
copyright = author  # noqa: A001, the name that Sphinx asks for
release = re.search(r"\n  VERSION ([0-9.]+)", _cmake).group(1)
version = release

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# The pages are read in the repository, too, where headings begin at any level.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

html_theme = "furo"
html_title = f"shmap {release}"
html_copy_source = False
html_show_sphinx = False
