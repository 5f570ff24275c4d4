"""shard_map and the collectives on 8 host devices.

A case has params mesh (sizes) and names, in_specs and out_specs (a text a spec, leaves in order),
body, and types: the body's result types, such as "f32[2,32]{i}" (a value may vary over the axes in
braces). A spec's text has an entry a dim: "i", "none", or "(j,i)", major first; "" is P().

Collectives (op = the collective's name) run on a block a device: the argument is split over all
axes on dim 0, and so is the result, whose dim 0 therefore lists the devices' blocks in order. A
scalar result is reshaped to (1,). Each is also computed by the plain model of the module beside
this one; where JAX refuses a case or orders ranks otherwise, the model's value stands and the case
has "jax": false.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from .common import Topic, arange, array
from .shard_map_collectives import collectives
from .shard_map_runner import M8, M42, Runner, make_mesh, type_text


def programs(runner):
    x = arange("f32", 12, 12)
    wide = np.tile(x, (1, 2))
    add = runner.add
    two = M42

    a, b = arange("f32", 8, 16), arange("f32", 16, 32)
    add(
        "matmul_basic",
        lambda p, q: lax.psum(p @ q, "j"),
        two,
        ["i,j", "j,none"],
        "i,none",
        a,
        b,
        body="psum(matmul(a, b), 'j')",
    )
    add(
        "matmul_reduce_scatter",
        lambda p, q: lax.psum_scatter(p @ q, "j", scatter_dimension=1, tiled=True),
        two,
        ["i,j", "j,none"],
        "i,j",
        a,
        b,
        body="psum_scatter(matmul(a, b), 'j', {1, tiled})",
    )

    # Inputs: tiling over unmentioned axes, several axes on a dim, rank kept.

    def identity(v):
        return v

    add("f1", identity, two, "i,none", "i,j", x, body="x")
    add("f2", identity, two, "i,j", "i,j", wide, body="x")
    add("tiled_major_first", identity, two, "(j,i),none", "i,j", np.tile(x, (2, 1)), body="x")
    add("minor_first", identity, two, "(i,j),none", "(j,i),none", arange("i32", 8, 2), body="x")
    add("identity_rows", identity, ((4,), ("i",)), "i", "i", arange("f32", 8, 5), body="x")
    add(
        "rank_preserving",
        lambda v: v.sum() + jnp.zeros((3, 7), v.dtype),
        ((4,), ("i",)),
        "i",
        "i",
        arange("f32", 8, 5),
        body="sum(x) + zeros({3, 7})",
    )
    add(
        "identity_xyz",
        identity,
        ((2, 2, 2), ("x", "y", "z")),
        "z,(x,y)",
        "z,(x,y)",
        arange("f32", 8, 8),
        body="x",
    )
    add(
        "permuted_devices",
        lambda v: v + 10 * lax.axis_index("i").astype(v.dtype),
        two,
        "i,j",
        "i,j",
        arange("f32", 4, 4),
        permutation=[5, 2, 7, 0, 1, 6, 3, 4],
        body="x + 10 * axis_index('i')",
    )

    # Outputs: untiling, sums over axes, block transpose.
    three = array([[3.0]], "f32")
    for out in ("i,j", "i,none", ""):
        add(f"untile/[{out}]", identity, two, "", out, three, body="x")
    add(
        "no_arguments",
        lambda: jnp.full((1, 1), 3.0, jnp.float32),
        two,
        [],
        "i,j",
        body="full({1, 1}, 3.f)",
    )
    add("f3", lambda v: lax.psum(v, "j"), two, "i,j", "i,none", x, body="psum(x, 'j')")
    add("f4", lambda v: lax.psum(v, "i"), two, "i,j", "none,j", x, body="psum(x, 'i')")
    add("f5", lambda v: lax.psum(v, ("i", "j")), two, "i,j", "", x, body="psum(x, ('i', 'j'))")
    add("block_transpose", identity, two, "i,j", "j,i", x, body="x")
    add("transpose_blocks_and_insides", lambda v: v.T, two, "i,j", "j,i", x, body="transpose(x)")
    add(
        "unchecked_takes_a_replica",
        lambda v: 2 * v,
        two,
        "i,none",
        "i,none",
        x,
        check=False,
        body="2 * x",
    )

    # Collectives in programs.
    eight = ((8,), ("i",))
    add(
        "ring_shift",
        lambda v: lax.ppermute(v, "i", [(k, (k + 1) % 8) for k in range(8)]),
        eight,
        "i,none",
        "i,none",
        arange("f32", 8, 8),
        body="ppermute(x, 'i', +1)",
    )
    add(
        "all_gather_invariant",
        lambda v: lax.all_gather(v, "i", tiled=True, to="invarying"),
        ((4,), ("i",)),
        "i",
        "",
        arange("f32", 8),
        body="all_gather_invariant(x, 'i', {tiled})",
    )
    for mesh, axis in ((eight, "i"), (two, "i"), (two, "j")):
        n = mesh[0][mesh[1].index(axis)]
        v = arange("f32", 8, 8)
        add(
            f"all_to_all_resharding/{'x'.join(map(str, mesh[0]))}/{axis}",
            lambda q, a=axis: lax.all_to_all(q, a, 1, 0, tiled=True),
            mesh,
            f"{axis},none",
            f"none,{axis}",
            v,
            axis=axis,
            body="all_to_all(x, axis, 1, 0, {tiled})",
        )
        flat = arange("f32", n * n, 1)
        add(
            f"all_to_all_columns/{'x'.join(map(str, mesh[0]))}/{axis}",
            lambda q, a=axis, k=n: lax.all_to_all(q.reshape(1, k), a, 1, 1, tiled=True),
            mesh,
            f"{axis},none",
            f"none,{axis}",
            flat,
            axis=axis,
            body="all_to_all(reshape(x, {1, n}), axis, 1, 1, {tiled})",
        )
    add(
        "partial_products",
        lambda p, q: (p @ q)[None],
        ((2, 2), ("x", "y")),
        ["x,y", "y,none"],
        "(x,y),none,none",
        arange("f32", 2, 4),
        arange("f32", 4, 2),
        body="expand_dims(matmul(a, b), 0)",
    )
    add(
        "partial_products_reduced",
        lambda p, q: lax.psum(p @ q, "y"),
        ((2, 2), ("x", "y")),
        ["x,y", "y,none"],
        "x,none",
        arange("f32", 2, 4),
        arange("f32", 4, 2),
        body="psum(matmul(a, b), 'y')",
    )
    cube = ((2, 2, 2), ("x", "y", "z"))
    a, b = arange("f32", 8, 8), (arange("f32", 8, 8) % 5).astype(np.float32)
    add(
        "reduce_scatter_over_y",
        lambda p, q: lax.psum_scatter(p @ q, "y", scatter_dimension=0, tiled=True),
        cube,
        ["z,y", "y,none"],
        "(z,y),none",
        a,
        b,
        body="psum_scatter(matmul(a, b), 'y', {0, tiled})",
    )
    add(
        "reduce_scatter_over_zy",
        lambda p, q: lax.psum_scatter(p @ q, ("z", "y"), scatter_dimension=0, tiled=True),
        cube,
        ["z,y", "y,none"],
        "(z,y),none",
        a,
        b,
        body="psum_scatter(matmul(a, b), ('z', 'y'), {0, tiled})",
    )
    add(
        "all_reduce_is_scatter_then_gather",
        lambda v: (
            lax.psum(v, "i"),
            lax.all_gather(lax.psum_scatter(v, "i", tiled=True), "i", tiled=True),
        ),
        eight,
        "i",
        ["", "i"],
        arange("f32", 64, 2),
        body="psum(x, 'i'); all_gather(psum_scatter(x, 'i', {tiled}), 'i', {tiled})",
    )
    # Some axes of the mesh, the others being automatic.
    add(
        "automatic_axes",
        lambda p, q: lax.psum(p @ q, "i"),
        two,
        ["i", ""],
        "",
        arange("f32", 8, 6),
        arange("f32", 6, 4),
        axis_names=["i"],
        body="psum(matmul(a, b), 'i')",
    )
    add(
        "automatic_axes/two_of_three",
        lambda p, q: lax.psum_scatter(p @ q, "y", scatter_dimension=0, tiled=True),
        cube,
        ["z,y", "y,none"],
        "(z,y),none",
        a,
        b,
        axis_names=["y", "z"],
        body="psum_scatter(matmul(a, b), 'y', {0, tiled})",
    )
    add(
        "nested",
        lambda p: jax.shard_map(
            lambda q: lax.psum(q, "j"), in_specs=P(None, "j"), out_specs=P(), axis_names={"j"}
        )(p)
        + lax.axis_index("i").astype(p.dtype),
        two,
        "i",
        "i",
        arange("f32", 8, 6),
        axis_names=["i"],
        body="shard_map(psum(q, 'j'), P(none, 'j'), P())(p) + axis_index('i')",
    )
    four = ((4,), ("i",))
    add(
        "repeated_psum",
        lambda v: lax.psum(lax.psum(v, "i"), "i"),
        four,
        "i",
        "",
        arange("f32", 4),
        body="psum(psum(x, 'i'), 'i')",
    )
    add("pmax", lambda v: lax.pmax(v, "i"), four, "i", "", arange("f32", 8), body="pmax(x, 'i')")
    add("pmin", lambda v: lax.pmin(v, "i"), four, "i", "", arange("f32", 8), body="pmin(x, 'i')")
    add("pmean", lambda v: lax.pmean(v, "i"), four, "i", "", arange("f32", 8), body="pmean(x, 'i')")
    add(
        "axis_index",
        lambda: lax.axis_index("i").reshape(1),
        four,
        [],
        "i",
        body="reshape(axis_index('i'), {1})",
    )
    for axes in (("i",), ("j",), ("i", "j"), ("j", "i")):
        add(
            f"axis_index/{','.join(axes)}",
            lambda s=axes: lax.axis_index(s).reshape(1, 1),
            two,
            [],
            ",".join(a if a in axes else "none" for a in ("i", "j")),
            axes=list(axes),
            body="reshape(axis_index(axes), {1, 1})",
        )
    add(
        "psum_of_axis_index_decides",
        lambda: jnp.where(lax.psum(lax.axis_index("i"), "i") > 0, jnp.float32(1), jnp.float32(0)),
        four,
        [],
        "",
        body="psum(axis_index('i'), 'i') > 0 ? 1.f : 0.f",
    )
    add(
        "control_flow",
        lambda v: jnp.where(lax.psum(v.sum(), ("x", "y")) < 0, v, -v),
        ((2, 2), ("x", "y")),
        "x,y",
        "x,y",
        arange("f32", 2, 2),
        body="psum(sum(x), ('x', 'y')) < 0 ? x : -x",
    )
    add(
        "static_psum",
        lambda v: v * lax.psum(1, ("i", "j")),
        two,
        "i,j",
        "i,j",
        arange("f32", 4, 2),
        body="x * psum(1, ('i', 'j'))",
    )
    add(
        "fan_out",
        lambda v: lax.pcast(v, "i", to="varying"),
        four,
        "",
        "i",
        arange("f32", 8),
        body="pbroadcast(x, 'i')",
    )
    add(
        "closure_is_an_argument",
        lambda v, w: jnp.sin(v * w).sum(keepdims=True),
        four,
        ["i", ""],
        "i",
        arange("f32", 8),
        array(0.5, "f32"),
        body="sum(sin(x * w), {0}, keepdims)",
        ulp=4,
    )
    add(
        "joined_variance",
        lambda v, w: v + w,
        two,
        ["i,none", "none,j"],
        "i,j",
        arange("f32", 4, 1),
        arange("f32", 1, 2, start=10, step=10),
        body="x + y",
    )
    add(
        "trees",
        lambda p, q, r: ({"w": p * 2, "b": lax.psum(q, "i")}["w"], lax.psum(q, "i"), q + r),
        four,
        ["i", "i", ""],
        ["i", "", "i"],
        arange("f32", 4, 2),
        arange("i32", 4),
        array(100, "i32"),
        body="{x * 2, psum(y, 'i'), y + z}",
    )
    add(
        "bf16_inside",
        lambda v: lax.psum(v.astype(jnp.bfloat16), "i").astype(jnp.float32),
        four,
        "i",
        "",
        array([1, 2.5, -3, 256, 1.0, 0.5, 1, 2], "f32"),
        body="astype(psum(astype(x, bf16), 'i'), f32)",
    )
    data_parallel_loss(runner)
    collective_matmul(runner)


def data_parallel_loss(runner):
    """The loss of a two-layer network, batch split over 8 devices, parameters replicated."""
    w0, w1 = (
        (arange("i64", 4, 8) % 7 - 3).astype(np.float32) / 4,
        (arange("i64", 8, 2) % 5 - 2).astype(np.float32) / 4,
    )
    inputs, targets = (
        (arange("i64", 16, 4) % 9 - 4).astype(np.float32),
        (arange("i64", 16, 2) % 3).astype(np.float32),
    )

    def loss(p, q, x, y):
        hidden = jnp.maximum(x @ p, 0)
        return lax.pmean(jnp.mean(jnp.sum((hidden @ q - y) ** 2, axis=1)), "batch")

    runner.add(
        "data_parallel_loss",
        loss,
        ((8,), ("batch",)),
        ["", "", "batch,none", "batch,none"],
        "",
        w0,
        w1,
        inputs,
        targets,
        ulp=4,
        body="pmean(mean(sum(square(matmul(relu(matmul(x, w0)), w1) - y), 1)), 'batch')",
    )


def collective_matmul(runner):
    """The ring: each step multiplies the block at hand while a neighbour sends the next."""

    def ring(lhs, rhs):
        n = lax.psum(1, "i")
        index = lax.axis_index("i")
        rows = lhs.shape[0]
        out = lax.pcast(jnp.zeros((n * rows, rhs.shape[1]), lhs.dtype), "i", to="varying")
        for step in range(n):
            out = lax.dynamic_update_slice(
                out, lhs @ rhs, ((index + step) % n * rows, jnp.int32(0))
            )
            if step + 1 < n:
                lhs = lax.ppermute(lhs, "i", [(k, (k - 1) % n) for k in range(n)])
        return out

    lhs, rhs = (
        (arange("i64", 16, 8) % 8).astype(np.float32),
        (arange("i64", 8, 16) % 8).astype(np.float32),
    )
    body = "the ring: dynamic_update_slice of matmul(lhs, rhs), ppermute(lhs, 'i', -1)"
    out = runner.add(
        "collective_matmul/replicated",
        ring,
        M8,
        ["i,none", ""],
        "",
        lhs,
        rhs,
        check=False,
        body=body,
    )
    assert np.array_equal(out[0], lhs @ rhs)
    out = runner.add(
        "collective_matmul/sharded_rhs",
        ring,
        M8,
        ["i,none", "none,i"],
        "none,i",
        lhs,
        rhs,
        body=body,
    )
    assert np.array_equal(out[0], lhs @ rhs)
    big = arange("i32", 16, 8, start=2**30 - 7, step=123457)
    other = arange("i32", 8, 16, start=-(2**29), step=7654321)
    runner.add(
        "collective_matmul/wrapping",
        ring,
        M8,
        ["i,none", "none,i"],
        "none,i",
        big,
        other,
        body=body,
    )
    # Corners of the full-size product of two aranges in i32: exact, by Python's integers.
    m, k, n = 4096, 2048, 1024
    corners = [(0, 0), (0, 1), (1, 0), (2048, 512), (4095, 1023)]
    values = [sum((r * k + t) * (t * n + c) for t in range(k)) for r, c in corners]
    wrapped = np.array([(v + 2**31) % 2**32 - 2**31 for v in values], np.int32)
    runner.topic.add(
        "collective_matmul/corners",
        [],
        [wrapped],
        body=body,
        sizes=[m, k, n],
        rows=[r for r, _ in corners],
        columns=[c for _, c in corners],
    )


def types(runner):
    """The typing table: what each collective makes of a type, on a mesh with i = 8."""
    cases = {
        "psum": (lambda v: lax.psum(v, "i"), "f32[3]", "varying"),
        "pbroadcast": (lambda v: lax.pcast(v, "i", to="varying"), "f32[3]", "invariant"),
        "all_to_all": (lambda v: lax.all_to_all(v, "i", 0, 0, tiled=True), "f32[16]", "varying"),
        "axis_index": (lambda v: lax.axis_index("i"), "f32[1]", "invariant"),
        "psum_scatter": (lambda v: lax.psum_scatter(v, "i", tiled=True), "f32[16]", "varying"),
        "all_gather": (lambda v: lax.all_gather(v, "i", tiled=True), "f32[2]", "varying"),
        "all_gather_invariant": (
            lambda v: lax.all_gather(v, "i", tiled=True, to="invarying"),
            "f32[2]",
            "varying",
        ),
        "ppermute": (lambda v: lax.ppermute(v, "i", [(0, 1)]), "f32[2]", "varying"),
        "pmax": (lambda v: lax.pmax(v, "i"), "f32[2]", "varying"),
        "add_joined": (lambda v: v + lax.axis_index("i").astype(v.dtype), "f32[2]", "invariant"),
        "mul_invariant": (lambda v: v * v, "f32[2]", "invariant"),
        "sum": (lambda v: v.sum(), "f32[2]", "varying"),
    }
    rows = []
    for name, (fn, text, variance) in cases.items():
        size = int(text[4:-1])
        found = []

        def body(v):
            found.append((type_text(v, ("i", "j")), type_text(fn(v), ("i", "j"))))
            return jnp.zeros(())

        mesh = make_mesh((8, 1), ("i", "j"))
        in_spec = P("i") if variance == "varying" else P()
        shape = (size * (8 if variance == "varying" else 1),)
        jax.eval_shape(
            jax.shard_map(body, mesh=mesh, in_specs=in_spec, out_specs=P()),
            jnp.zeros(shape, jnp.float32),
        )
        rows.append(f"{name}: {found[0][0]} -> {found[0][1]}")
    rows.append("pscatter: f32[16] -> f32[2]{i}")  # no function of JAX's
    runner.topic.add("types", mesh=[8, 1], names=["i", "j"], rows=rows)


def make():
    topic = Topic("shard_map and collectives on 8 devices; a spec's text has an entry a dim.")
    runner = Runner(topic)
    programs(runner)
    collectives(runner)
    types(runner)
    return topic
