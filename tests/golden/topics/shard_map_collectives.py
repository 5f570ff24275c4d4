"""The collectives, one at a time, beside a plain model of each."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from .common import DTYPES, arange
from .shard_map_runner import M8, M42, make_mesh


def groups_of(mesh, axes, index_groups=None):
    """Lists of device numbers, each in rank order: row-major over `axes` in the order given."""
    sizes, names = mesh
    at = [names.index(a) for a in axes]
    by_rest = {}
    for device, coords in enumerate(np.ndindex(*sizes)):
        rank = int(np.ravel_multi_index([coords[k] for k in at], [sizes[k] for k in at]))
        rest = tuple(c for k, c in enumerate(coords) if k not in at)
        by_rest.setdefault(rest, {})[rank] = device
    cliques = [[ranks[r] for r in range(len(ranks))] for ranks in by_rest.values()]
    if index_groups is None:
        return cliques
    return [[clique[r] for r in group] for clique in cliques for group in index_groups]


def split_rank(mesh, axes, device):
    """The number of the piece that a device holds of what is split over `axes`, in mesh order."""
    sizes, names = mesh
    coords = np.unravel_index(device, sizes)
    rank = 0
    for size, name, coord in zip(sizes, names, coords):
        rank = rank * size + int(coord) if name in axes else rank
    return rank


def model(op, blocks, mesh, axes, groups=None, **kw):
    out = [None] * len(blocks)
    for clique in groups_of(mesh, axes, groups):
        xs = [blocks[d] for d in clique]
        n = len(xs)
        for rank, device in enumerate(clique):
            out[device] = one(op, xs, n, rank, clique, **kw)
    return out


def one(
    op, xs, n, rank, clique, axis=0, tiled=False, perm=None, split_axis=0, concat_axis=0, source=0
):
    dtype = xs[0].dtype
    if op in ("psum", "pmean"):
        total = sum(x.astype(np.float64) for x in xs)
        return (total / n if op == "pmean" else total).astype(dtype)
    if op in ("pmax", "pmin"):
        return (np.max if op == "pmax" else np.min)(np.stack(xs), axis=0)
    if op in ("all_gather", "all_gather_invariant"):
        return np.concatenate(xs, axis) if tiled else np.stack(xs, axis)
    if op in ("psum_scatter", "pscatter"):
        whole = (
            xs[rank] if op == "pscatter" else sum(x.astype(np.float64) for x in xs).astype(dtype)
        )
        return np.split(whole, n, axis)[rank] if tiled else np.take(whole, rank, axis)
    if op == "all_to_all":
        pieces = [np.split(x, n, split_axis)[rank] for x in xs]
        if tiled:
            return np.concatenate(pieces, concat_axis)
        return np.stack([p.squeeze(split_axis) for p in pieces], concat_axis)
    if op == "pswapaxes":
        return np.stack([np.take(x, rank, axis) for x in xs], axis)
    if op in ("ppermute", "pshuffle"):
        pairs = perm if op == "ppermute" else [(src, dst) for dst, src in enumerate(perm)]
        sources = [src for src, dst in pairs if dst == rank]
        return xs[sources[0]] if sources else np.zeros_like(xs[0])
    if op == "broadcast_from":
        return xs[source]
    if op == "axis_index":
        return np.full((1,), rank, np.int32)
    raise ValueError(op)


def jax_body(
    op, axes, groups=None, axis=0, tiled=False, perm=None, split_axis=0, concat_axis=0, source=0
):
    axes = axes[0] if len(axes) == 1 else tuple(axes)
    g = {} if groups is None else {"axis_index_groups": groups}
    return {
        "psum": lambda x: lax.psum(x, axes, **g),
        "pmean": lambda x: lax.pmean(x, axes, **g),
        "pmax": lambda x: lax.pmax(x, axes, **g),
        "pmin": lambda x: lax.pmin(x, axes, **g),
        "all_gather": lambda x: lax.all_gather(x, axes, axis=axis, tiled=tiled, **g),
        "all_gather_invariant": lambda x: lax.all_gather(
            x, axes, axis=axis, tiled=tiled, to="invarying"
        ),
        "psum_scatter": lambda x: lax.psum_scatter(
            x, axes, scatter_dimension=axis, tiled=tiled, **g
        ),
        "pswapaxes": lambda x: lax.pswapaxes(x, axes, axis, **g),
        "all_to_all": lambda x: lax.all_to_all(x, axes, split_axis, concat_axis, tiled=tiled, **g),
        "ppermute": lambda x: lax.ppermute(x, axes, perm),
        "pshuffle": lambda x: lax.pshuffle(x, axes, perm),
        "axis_index": lambda x: lax.axis_index(axes).reshape(1),
    }.get(op)


class Collectives:
    def __init__(self, runner):
        self.runner = runner
        self.topic = runner.topic

    def add(self, op, mesh, axes, block, dtype="i32", label="", in_spec=None, types=None, **kw):
        """types: ours, where JAX refuses the case or has no such type."""
        sizes, names = mesh
        everything = "(" + ",".join(names) + ")" if len(names) > 1 else names[0]
        devices = int(np.prod(sizes))
        split_over = names if in_spec is None else [n for n in names if n in in_spec]
        pieces = int(np.prod([sizes[names.index(n)] for n in split_over]))
        x = arange("i64", pieces * block[0], *block[1:])
        x = (x * 5 % 17 - 8 if op in ("pmax", "pmin", "psum") else x).astype(DTYPES[dtype])
        blocks = [
            np.split(x, pieces)[rank]
            for rank in (split_rank(mesh, split_over, device) for device in range(devices))
        ]
        want = [np.atleast_1d(b) for b in model(op, blocks, mesh, axes, **kw)]
        want = np.concatenate(want)
        body = jax_body(op, axes, **kw)
        flags = {}
        name = f"{op}/{'x'.join(map(str, sizes))}/{','.join(axes)}" + (f"/{label}" if label else "")
        ins = [everything if in_spec is None else in_spec]
        try:
            if body is None:
                raise NotImplementedError("no such function")

            def fn(b):
                return jnp.atleast_1d(body(b))

            try:
                out, found = self.runner.call(fn, make_mesh(*mesh), ins, [everything], [x])
                if types is not None and types != found:
                    print(f"  {name}: types are ours: {types}, JAX has {found}")
                types = types or found
            except (NotImplementedError, ValueError, TypeError) as error:
                print(f"  {name}: only unchecked in JAX: {str(error)[:90]}")
                out, _ = self.runner.call(fn, make_mesh(*mesh), ins, [everything], [x], check=False)
            if not np.array_equal(out[0], want):
                print(f"  {name}: JAX has other values than the model")
                flags["jax"] = False
        except (NotImplementedError, ValueError, TypeError) as error:
            print(f"  {name}: not in JAX: {str(error)[:90]}")
            flags["jax"] = False
        if types is not None:
            flags["types"] = types
        if kw.get("groups") is not None:
            kw["groups"] = [list(g) for g in kw["groups"]]
        self.topic.add(
            name,
            [x],
            [want],
            op=op,
            mesh=list(sizes),
            names=list(names),
            axes=list(axes),
            in_specs=ins,
            out_specs=[everything],
            **kw,
            **flags,
        )


CLIQUES = [(M8, ("i",)), (M42, ("i",)), (M42, ("j",)), (M42, ("i", "j")), (M42, ("j", "i"))]


def collectives(runner):
    c = Collectives(runner)
    for mesh, axes in CLIQUES:
        n = int(np.prod([mesh[0][mesh[1].index(a)] for a in axes]))
        for op in ("psum", "pmax", "pmin"):
            c.add(op, mesh, axes, (1, 3))
        c.add("pmean", mesh, axes, (1, 3), dtype="f32")
        for axis, tiled in ((0, False), (0, True), (1, False), (1, True)):
            c.add(
                "all_gather",
                mesh,
                axes,
                (1, 2),
                label=f"axis{axis}" + "_tiled" * tiled,
                axis=axis,
                tiled=tiled,
            )
        c.add("all_gather_invariant", mesh, axes, (1, 2), label="tiled", tiled=True)
        c.add("psum_scatter", mesh, axes, (n, 2), label="axis0", axis=0)
        c.add("psum_scatter", mesh, axes, (2, n), label="axis1", axis=1)
        c.add("psum_scatter", mesh, axes, (2 * n, 1), label="axis0_tiled", axis=0, tiled=True)
        c.add("psum_scatter", mesh, axes, (1, 2 * n), label="axis1_tiled", axis=1, tiled=True)
        c.add(
            "pscatter",
            mesh,
            axes,
            (2 * n, 1),
            label="axis0_tiled",
            in_spec="",
            axis=0,
            tiled=True,
            types=[f"i32[2,1]{{{','.join(a for a in mesh[1] if a in axes)}}}"],
        )
        c.add(
            "pscatter",
            mesh,
            axes,
            (2, n),
            label="axis1",
            in_spec="",
            axis=1,
            types=[f"i32[2]{{{','.join(a for a in mesh[1] if a in axes)}}}"],
        )
        for split, concat in ((0, 0), (0, 1), (1, 0), (1, 1)):
            label = f"split{split}_concat{concat}"
            c.add(
                "all_to_all",
                mesh,
                axes,
                (n, n),
                label=label + "_tiled",
                split_axis=split,
                concat_axis=concat,
                tiled=True,
            )
            c.add(
                "all_to_all",
                mesh,
                axes,
                (n, 2) if split == 0 else (2, n),
                label=label,
                split_axis=split,
                concat_axis=concat,
            )
        for axis in (0, 1):
            c.add(
                "pswapaxes",
                mesh,
                axes,
                (n, 2) if axis == 0 else (2, n),
                label=f"axis{axis}",
                axis=axis,
            )
        ring = [[k, (k + 1) % n] for k in range(n)]
        c.add("ppermute", mesh, axes, (1, 2), label="ring", perm=ring)
        c.add(
            "ppermute",
            mesh,
            axes,
            (1, 2),
            label="partial",
            perm=[[0, n - 1]] + ([[2, 1]] if n > 2 else []),
        )
        c.add("ppermute", mesh, axes, (1, 2), label="empty", perm=[])
        c.add("pshuffle", mesh, axes, (1, 2), label="reverse", perm=list(range(n))[::-1])
        c.add("broadcast_from", mesh, axes, (1, 2), label=f"source{n - 1}", source=n - 1)
        c.add("axis_index", mesh, axes, (1, 1))
    for dtype in ("f32", "bf16", "f16", "f64", "u8", "i64"):
        c.add("psum", M8, ("i",), (1, 3), dtype=dtype, label=dtype)
    for label, groups in (
        ("halves", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("pairs", [[0, 5], [1, 4], [2, 7], [6, 3]]),
    ):
        n = len(groups[0])
        for op in ("psum", "pmax", "pmin"):
            c.add(op, M8, ("i",), (1, 3), label=label, groups=groups, types=["i32[1,3]{i}"])
        c.add("all_gather", M8, ("i",), (1, 2), label=label, groups=groups)
        c.add("all_gather", M8, ("i",), (1, 2), label=label + "_tiled", groups=groups, tiled=True)
        c.add("psum_scatter", M8, ("i",), (n, 2), label=label, groups=groups)
        c.add(
            "psum_scatter",
            M8,
            ("i",),
            (2 * n, 1),
            label=label + "_tiled",
            groups=groups,
            tiled=True,
        )
        c.add("all_to_all", M8, ("i",), (n, 2), label=label, groups=groups)
        c.add(
            "all_to_all",
            M8,
            ("i",),
            (n, n),
            label=label + "_tiled",
            groups=groups,
            concat_axis=1,
            tiled=True,
        )
    c.add(
        "psum",
        M42,
        ("i",),
        (1, 3),
        label="groups",
        groups=[[0, 1], [2, 3]],
        types=["i32[1,3]{i,j}"],
    )
    c.add("all_gather", M42, ("i",), (1, 2), label="groups", groups=[[0, 3], [2, 1]])
    # A value that does not vary over the axis, or over one of the axes, is cast first.
    for op, axes, in_spec, type_ in (
        ("psum", ("i",), "j", "i32[2,2]{j}"),
        ("psum", ("i", "j"), "i", "i32[2,2]"),
        ("psum", ("i", "j"), "", "i32[2,2]"),
        ("pmax", ("i", "j"), "j", "i32[2,2]"),
        ("all_gather", ("i", "j"), "i", "i32[8,2,2]{i,j}"),
        ("all_gather_invariant", ("i",), "j", "i32[4,2,2]{j}"),
    ):
        label = f"of_varying_over_{in_spec or 'none'}"
        c.add(op, M42, axes, (2, 2), label=label, in_spec=in_spec, types=[type_])
    c.add(
        "psum_scatter",
        M42,
        ("i", "j"),
        (8, 2),
        label="of_varying_over_i",
        in_spec="i",
        types=["i32[2]{i,j}"],
    )
    c.add(
        "all_to_all",
        M42,
        ("j",),
        (2, 2),
        label="of_varying_over_i",
        in_spec="i",
        types=["i32[2,2]{i,j}"],
    )
    c.add(
        "ppermute",
        M42,
        ("i",),
        (1, 2),
        label="of_varying_over_j",
        in_spec="j",
        perm=[[0, 1], [3, 2]],
        types=["i32[1,2]{i,j}"],
    )
