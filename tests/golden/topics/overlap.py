"""Overlapped products in their plain forms, and their gradients, inside of shard_map.

Inputs: a, b and the cotangent of the result; outputs: the result and both gradients. The case's
parameters say the call, in the words of tests/overlap/golden_overlap_test.cpp.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .common import DTYPES, Topic
from .shard_map_runner import make_mesh, spec

M4 = ((4,), ("i",))
M24 = ((2, 4), ("y", "z"))


def wave(dtype, shape, start):
    n = int(np.prod(shape))
    return np.sin(start + 0.7 * np.arange(n) ** 1.1).reshape(shape).astype(DTYPES[dtype])


def plain(kind, text, axes, operand, at, to):
    name = tuple(axes)

    def body(a, b):
        xs = [a, b]
        if kind == "gather":
            xs[operand] = lax.all_gather(xs[operand], name, axis=at, tiled=True)
        if kind == "exchange":
            xs[operand] = lax.all_to_all(xs[operand], name, at, to, tiled=True)
        y = jnp.einsum(text, *xs)
        if kind == "scatter":
            y = lax.psum_scatter(y, name, scatter_dimension=at, tiled=True)
        return y

    return body


# kind, einsum, mesh, axes, operand, dim, dim joined, shapes of whole arrays, specs of these and of y
I, YZ = ["i"], ["y", "z"]
LAST = "none,none,i"
CASES = [
    ("gather", "bte,ef->btf", M4, I, 0, 1, 0, (2, 12, 4), (4, 8), ["none,i", "none,i", LAST]),
    ("gather", "bte,ef->btf", M4, I, 0, 2, 0, (2, 3, 8), (8, 8), [LAST, "none,i", LAST]),
    ("gather", "bte,ef->btf", M4, I, 1, 0, 0, (8, 3, 8), (8, 3), ["i", "i", "i"]),
    ("gather", "bte,ef->btf", M24, YZ, 0, 1, 0, (2, 24, 4), (4, 8),
     ["none,(y,z)", "none,(y,z)", "none,none,(y,z)"]),
    ("gather", "bte,hed->bthd", M24, ["z"], 1, 1, 0, (2, 3, 8), (2, 8, 4),
     ["y", "none,z", "y,none,none,z"]),
    ("scatter", "btf,fe->bte", M4, I, 0, 1, 0, (2, 12, 8), (8, 4), [LAST, "i", "none,i"]),
    ("scatter", "btf,fe->bte", M4, I, 0, 2, 0, (2, 3, 8), (8, 8), [LAST, "i", LAST]),
    ("scatter", "btf,fe->bte", M24, ["z", "y"], 0, 0, 0, (8, 3, 16), (16, 4),
     ["none,none,(z,y)", "(z,y)", "(z,y)"]),
    ("scatter", "bthd,hde->bte", M24, ["z"], 0, 2, 0, (2, 3, 8, 2), (8, 2, 8),
     ["y,none,z", "z", "y,none,z"]),
    ("exchange", "bte,ef->btf", M4, I, 0, 1, 0, (4, 8, 3), (3, 8), ["i", "none,i", LAST]),
    ("exchange", "bte,ef->btf", M4, I, 0, 0, 2, (8, 3, 8), (8, 3), [LAST, "", "i"]),
    ("exchange", "...e,...ef->...f", M24, YZ, 1, 3, 0, (8, 2, 3), (8, 1, 3, 16),
     ["", "(y,z)", "none,none,(y,z)"]),
]


def make():
    topic = Topic(__doc__)
    for dtype in ("f32", "bf16"):
        for number, (kind, text, mesh, axes, operand, at, to, a, b, specs) in enumerate(CASES):
            x, y = wave(dtype, a, 0.3), wave(dtype, b, 1.1)
            sizes, names = mesh
            mapped = jax.shard_map(
                plain(kind, text, axes, operand, at, to),
                mesh=make_mesh(sizes, names),
                in_specs=(spec(specs[0]), spec(specs[1])),
                out_specs=spec(specs[2]),
            )
            z = jax.jit(mapped)(x, y)
            ct = wave(dtype, z.shape, 0.9)

            def run(x, y, ct, mapped=mapped):
                z, pullback = jax.vjp(mapped, x, y)
                return (z, *pullback(ct))

            topic.run(
                f"{kind}/{number}/{dtype}",
                jax.jit(run),
                x,
                y,
                ct,
                kind=kind,
                spec=text,
                mesh=list(sizes),
                names=list(names),
                axes=axes,
                operand=operand,
                dim=at,
                joined=to,
                in_specs=specs[:2],
                out_specs=specs[2:],
                ulp=8,
                atol={"f32": 2e-6, "bf16": 0.04}[dtype],
            )
    return topic
