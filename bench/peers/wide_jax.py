"""The rows of the wide table in JAX on 8 host devices, jitted, each call waited for."""

import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8")

import jax  # noqa: E402
import jaxlib  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P  # noqa: E402

import wide_rows  # noqa: E402
from protocol import Row, serve  # noqa: E402
from wide_data import arguments, sample  # noqa: E402


def mesh_of(text):
    names, sizes = zip(*(part.split("=") for part in text.split(",")))
    return jax.make_mesh(tuple(map(int, sizes)), names, axis_types=(AxisType.Auto,) * len(names))


MESHES = {text: mesh_of(text) for text in ("i=8", "x=4,y=2")}


# Rows with no argument of 64 bits, whose result has 64 bits in our program.
WIDE_RESULTS = ("cast_i32_f64",)


class WideRow(Row):
    """A row that may have values of 64 bits. The others run without them: indices and masks that JAX
    makes itself would have 64 bits too, which our program does not compute."""

    def __init__(self, wide, **fields):
        super().__init__(**fields)
        self.wide = wide

    def round(self, milliseconds):
        allow_wide(self.wide)
        return super().round(milliseconds)


def allow_wide(wide):
    jax.config.update("jax_enable_x64", wide)


def row(name, function, mesh, *words):
    wide = name in WIDE_RESULTS or any("64[" in word for word in words)
    allow_wide(wide)
    args = []
    for values, dtype, axes in arguments(words):
        x = jax.numpy.asarray(values)
        if dtype in ("bf16", "f16"):
            x = x.astype({"bf16": jax.numpy.bfloat16, "f16": jax.numpy.float16}[dtype])
        place = jax.devices()[0]
        if mesh != "-":
            place = NamedSharding(MESHES[mesh], P(*axes))
        args.append(jax.device_put(x, place))
    jitted = jax.jit(function)
    last = []

    def call():
        last[:] = [jax.block_until_ready(jitted(*args))]

    def values():
        return [sample(np.asarray(leaf, dtype=np.float64)) for leaf in jax.tree.leaves(last[0])]

    return WideRow(wide, call=call, check=lambda: "", about=lambda: {"sample": values()})


if __name__ == "__main__":
    rows = wide_rows.jax_rows(MESHES["i=8"], MESHES["x=4,y=2"])
    sys.exit(serve("jax_wide", {"jax": jax.__version__, "jaxlib": jaxlib.__version__},
                   {name: (lambda *words, name=name, f=f: row(name, f, *words))
                    for name, f in rows.items()}))
