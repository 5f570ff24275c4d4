"""Calls bodies under shard_map on a mesh of host devices, and keeps the types of their results."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from .common import SHORT

M8 = ((8,), ("i",))
M42 = ((4, 2), ("i", "j"))


def make_mesh(sizes, names, permutation=None):
    count = int(np.prod(sizes))
    devices = np.array(jax.devices()[:count])
    if permutation is not None:
        devices = devices[np.array(permutation)]
    return Mesh(devices.reshape(sizes), names)


def spec(text):
    if not text:
        return P()
    entries, depth, start = [], 0, 0
    for at, ch in enumerate(text + ","):
        depth += (ch == "(") - (ch == ")")
        if ch == "," and depth == 0:
            entries.append(text[start:at])
            start = at + 1
    return P(
        *[None if e == "none" else tuple(e[1:-1].split(",")) if e[0] == "(" else e for e in entries]
    )


def varying(x):
    return (
        jax.typeof(x).manual_axis_type.varying
        if hasattr(jax.typeof(x), "manual_axis_type")
        else jax.typeof(x).vma
    )


def type_text(x, names):
    axes = ",".join(n for n in names if n in varying(x))
    dims = ",".join(str(d) for d in x.shape)
    return f"{SHORT[np.dtype(x.dtype)]}[{dims}]" + (f"{{{axes}}}" if axes else "")


class Runner:
    """Calls a body under shard_map, and keeps the types of what it returns."""

    def __init__(self, topic):
        self.topic = topic

    def call(self, fn, mesh, in_specs, out_specs, args, check=True, axis_names=()):
        types = []

        def wrapped(*blocks):
            out = fn(*blocks)
            types[:] = [type_text(leaf, mesh.axis_names) for leaf in jax.tree.leaves(out)]
            return out

        out_tree = tuple(map(spec, out_specs)) if len(out_specs) != 1 else spec(out_specs[0])
        mapped = jax.shard_map(
            wrapped,
            mesh=mesh,
            in_specs=tuple(map(spec, in_specs)),
            out_specs=out_tree,
            check_vma=check,
            axis_names=set(axis_names),
        )
        out = jax.block_until_ready(jax.jit(mapped)(*map(jnp.asarray, args)))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(out)], types

    def add(
        self,
        name,
        fn,
        mesh,
        in_specs,
        out_specs,
        *args,
        check=True,
        permutation=None,
        axis_names=(),
        **params,
    ):
        in_specs = [in_specs] if isinstance(in_specs, str) else in_specs
        out_specs = [out_specs] if isinstance(out_specs, str) else out_specs
        sizes, names = mesh
        out, types = self.call(
            fn,
            make_mesh(sizes, names, permutation),
            in_specs,
            out_specs,
            args,
            check,
            axis_names,
        )
        if check:
            params["types"] = types
        else:
            params["check_vma"] = False
        if axis_names:
            params["axis_names"] = list(axis_names)
        if permutation is not None:
            params["devices"] = permutation
        self.topic.add(
            name,
            list(args),
            out,
            mesh=list(sizes),
            names=list(names),
            in_specs=in_specs,
            out_specs=out_specs,
            **params,
        )
        return out
