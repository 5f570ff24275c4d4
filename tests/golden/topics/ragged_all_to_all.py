"""ragged_all_to_all on 8 host devices: values, types and cotangents.

A case has the global arrays operand, output, input_offsets, send_sizes, output_offsets and
recv_sizes, all split over all mesh axes on dim 0, and a cotangent of the result. Its outputs are
the result and the cotangents of operand and output. Params: mesh (sizes) and names, axes, groups,
and types, the type of the body's result.

JAX has no ragged_all_to_all on CPUs: the types are JAX's, which traces it; the values are those of
the loop that JAX's documentation gives, in NumPy; the cotangents are JAX's of a gather that moves
the same rows. Where "jax" is false, JAX's documentation leaves the values undefined, and the loop
has our definition: of two sizes the smaller counts, rows outside of the arrays are left out, and
later slices overwrite earlier ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .common import DTYPES, Topic, arange
from .shard_map_collectives import CLIQUES, groups_of
from .shard_map_runner import M8, M42, make_mesh, spec, type_text


def copies(cliques, sizes, rows):
    """(sender, row of its operand, receiver, row of its output), in the order of the copies."""
    offsets, send, to, recv = sizes
    n, m = rows
    for clique in cliques:
        each = offsets.shape[1] // len(clique)
        for rank, receiver in enumerate(clique):
            for sent_by, sender in enumerate(clique):
                for k in range(each):
                    mine, theirs = sent_by * each + k, rank * each + k
                    source, row = int(offsets[sender, theirs]), int(to[sender, theirs])
                    size = min(int(send[sender, theirs]), int(recv[receiver, mine]))
                    for r in range(max(0, -source, -row), min(size, n - source, m - row)):
                        yield sender, source + r, receiver, row + r


def model(cliques, operand, output, sizes):
    out = output.copy()
    for sender, source, receiver, row in copies(
        cliques, sizes, (operand.shape[1], output.shape[1])
    ):
        out[receiver, row] = operand[sender, source]
    return out


def as_gather(cliques, operand, output, sizes):
    """A function of operand and output, [devices * rows, ...], with the values of the model."""
    n, m = operand.shape[1], output.shape[1]
    source = np.full(len(output) * m, -1)
    for sender, at, receiver, row in copies(cliques, sizes, (n, m)):
        source[receiver * m + row] = sender * n + at

    def gathered(x, y):
        is_set = (source >= 0).reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(is_set, x[np.maximum(source, 0)], y)

    return gathered


def body_type(mesh, axes, groups, args):
    """The type of the result in JAX, which is traced only."""
    sizes, names = mesh
    types = []
    axis = axes[0] if len(axes) == 1 else tuple(axes)
    everything = "(" + ",".join(names) + ")"

    def body(*blocks):
        out = lax.ragged_all_to_all(*blocks, axis_name=axis, axis_index_groups=groups)
        types.append(type_text(out, names))
        return out

    mapped = jax.shard_map(
        body, mesh=make_mesh(*mesh), in_specs=(spec(everything),) * 6, out_specs=spec(everything)
    )
    jax.eval_shape(mapped, *map(jnp.asarray, args))
    return types[0]


def joined(x):
    return x.reshape(-1, *x.shape[2:])


class Cases:
    def __init__(self, topic):
        self.topic = topic
        self.rng = np.random.default_rng(7)

    def add(self, name, mesh, axes, operand, output, sizes, groups=None, jax_has=True):
        cliques = groups_of(mesh, axes, groups)
        want = model(cliques, operand, output, sizes)
        args = [joined(operand), joined(output), *map(joined, sizes)]
        gathered = as_gather(cliques, operand, output, sizes)
        assert np.array_equal(np.asarray(gathered(*args[:2])), joined(want)), name
        flags = {} if groups is None else {"groups": groups}
        if not jax_has:
            flags["jax"] = False
        cotangents = []
        if np.issubdtype(operand.dtype, np.floating):
            cotangent = (1 + np.arange(want.size) * 5 % 13).astype(want.dtype)
            cotangent = cotangent.reshape(args[1].shape)
            _, pullback = jax.vjp(gathered, *map(jnp.asarray, args[:2]))
            cotangents = list(map(np.asarray, pullback(jnp.asarray(cotangent))))
            args.append(cotangent)
        self.topic.add(
            name,
            args,
            [joined(want), *cotangents],
            mesh=list(mesh[0]),
            names=list(mesh[1]),
            axes=list(axes),
            types=[body_type(mesh, axes, groups, args[:6])],
            **flags,
        )

    def drawn(self, cliques, each, wide, most):
        """Sizes and offsets that fit: slices of 0 … most rows, in any order, with gaps."""
        devices, ranks = sum(map(len, cliques)), len(cliques[0])
        send = self.rng.integers(0, most + 1, (devices, ranks * each))
        to, recv = np.zeros_like(send), np.zeros_like(send)
        m = 1
        for clique in cliques:
            for rank, receiver in enumerate(clique):
                at = 0
                for k in self.rng.permutation(ranks * each):
                    sender, theirs = clique[k // each], rank * each + k % each
                    at += self.rng.integers(0, 2)
                    to[sender, theirs] = at
                    recv[receiver, k] = send[sender, theirs]
                    at += send[sender, theirs]
                m = max(m, at)
        n = m + 3 if wide else max(most, m // 2)
        offsets = self.rng.integers(0, n - send + 1)
        return n, m, [x.astype(np.int32) for x in (offsets, send, to, recv)]

    def draw(self, name, mesh, axes, each=1, wide=False, row=(), dtype="f32", most=3, groups=None):
        cliques = groups_of(mesh, axes, groups)
        n, m, sizes = self.drawn(cliques, each, wide, most)
        devices = int(np.prod(mesh[0]))
        # Distinct values, small enough to be exact in every dtype.
        operand = arange("i64", devices, n, *row) % 120 + 1
        output = -(arange("i64", devices, m, *row) % 120) - 1
        self.add(
            name,
            mesh,
            axes,
            operand.astype(DTYPES[dtype]),
            output.astype(DTYPES[dtype]),
            sizes,
            groups,
        )


def make():
    topic = Topic(__doc__)
    cases = Cases(topic)

    def i32(*rows):
        return np.array(rows, np.int32)

    # The example of JAX's documentation, in each row of the mesh.
    cases.add(
        "known_answer",
        M42,
        ("j",),
        np.tile(np.array([[1, 2, 2], [3, 4, 0]], np.float32), (4, 1)),
        np.zeros((8, 4), np.float32),
        [
            np.tile(x, (4, 1))
            for x in (
                i32([0, 1], [0, 1]),
                i32([1, 2], [1, 1]),
                i32([0, 0], [1, 2]),
                i32([1, 1], [2, 1]),
            )
        ],
    )
    for mesh, axes in CLIQUES:
        where = f"{'x'.join(map(str, mesh[0]))}/{','.join(axes)}"
        for each in (1, 3):
            for wide in (False, True):
                label = f"{where}/{each}_{'wide' if wide else 'narrow'}"
                row = (2,) if each == 1 else ()
                cases.draw(label, mesh, axes, each, wide, row, most=2 if each == 1 else 1)
    for dtype in ("f64", "bf16", "f16", "i32", "u8", "i64"):
        cases.draw(f"8/i/{dtype}", M8, ("i",), dtype=dtype, wide=dtype in ("f64", "i32"))
    cases.draw("8/i/rows_of_two_dims", M8, ("i",), row=(2, 3), most=1)
    cases.draw("8/i/nothing_is_sent", M8, ("i",), most=0)
    for label, groups in (
        ("halves", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("pairs", [[0, 5], [1, 4], [2, 7], [6, 3]]),
        ("alone", [[k] for k in range(8)]),
    ):
        for wide in (False, True):
            name = f"8/i/{label}_{'wide' if wide else 'narrow'}"
            cases.draw(name, M8, ("i",), each=2, wide=wide, row=(2,), groups=groups)
    cases.draw("4x2/i/groups", M42, ("i",), groups=[[0, 3], [2, 1]])
    cases.draw("4x2/j,i/groups", M42, ("j", "i"), groups=[[0, 3, 5, 6], [1, 2, 7, 4]], wide=True)

    # One slice for both, whose rows are sent twice.
    for label, n in (("narrow", 3), ("wide", 7)):
        cases.add(
            f"4x2/j/sent_twice_{label}",
            M42,
            ("j",),
            arange("f32", 8, n),
            np.zeros((8, 5), np.float32),
            [
                np.tile(i32([1, 1]), (8, 1)),
                np.tile(i32([2, 2]), (8, 1)),
                np.tile(i32([0, 0], [3, 3]), (4, 1)),
                np.tile(i32([2, 2]), (8, 1)),
            ],
        )
    # Each case with N <= M and with N > M: rows outside of the arrays, sizes that differ or are
    # negative, offsets near the ends of their dtype, and slices that overlap.
    least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    for label, n, m in (("narrow", 4, 6), ("wide", 6, 4)):
        for name, sizes in (
            ("outside", [[-1, 3], [3, 5], [3, -2], [3, 5]]),
            ("far_outside", [[least, 2], [most, 2], [0, most], [most, 2]]),
            ("most_rows", [[0, -2], [most, most], [2, 0], [most, most]]),
            ("unlike_sizes", [[0, 1], [3, 1], [1, 2], [2, 2]]),
            ("negative_sizes", [[0, 1], [-3, 2], [1, 2], [2, least]]),
            ("overlapping", [[0, 1], [3, 2], [0, 1], [3, 2]]),
        ):
            cases.add(
                f"4x2/j/{name}_{label}",
                M42,
                ("j",),
                arange("f32", 8, n, 2, start=1),
                -arange("f32", 8, m, 2, start=1),
                [np.tile(i32(x), (8, 1)) for x in sizes],
                jax_has=False,
            )
    return topic
