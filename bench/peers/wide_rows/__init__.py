"""The peers' side of the wide table: one file for each family of rows, and in it, for each peer, a
function that returns a function of arrays for each row's name. bench/wide/ has the same rows, and
says what their arguments are."""

import importlib

FAMILIES = ("elementwise", "reductions", "products", "shapes", "gathers", "loops", "random",
            "training", "meshes")


def _rows(kind, *args):
    rows = {}
    for family in FAMILIES:
        module = importlib.import_module("." + family, __name__)
        if hasattr(module, kind):
            rows |= getattr(module, kind)(*args)
    return rows


def jax_rows(line, grid):
    """line, grid: the meshes of the rows on 8 devices."""
    return _rows("jax_rows") | _rows("jax_mesh_rows", line, grid)


def torch_rows():
    return _rows("torch_rows")
