"""Functions that move elements: shapes, slices, gathers, casts and NumPy's indexing.

An index is a text, a term a dim: "2", "-1", ":", "1:", "1:5:2", "none", "i0" (the input array after
the operand, an index array; i1 the next) and "...".
"""

import jax
import jax.numpy as jnp
from jax import lax

from .common import DTYPES, FLOATS, Topic, arange, array


def make():
    topic = Topic("Functions that move elements; params name the call, inputs are its arrays.")
    for part in (reshaping, joining, slicing, dynamic, gathering, choosing, casting, indexing):
        part(topic)
    return topic


def reshaping(topic):
    def run(op, label, fn, x, **params):
        topic.run(f"{op}/{label}", fn, x, op=op, **params)

    x = arange("f32", 2, 3, 4)
    for label, shape in (
        ("merge", [6, 4]),
        ("infer", [3, -1]),
        ("ones", [1, 24, 1]),
        ("flat", [-1]),
    ):
        run("reshape", label, lambda a, s=shape: jnp.reshape(a, s), x, shape=shape)
    run(
        "reshape",
        "empty",
        lambda a: jnp.reshape(a, (3, 0, 2)),
        arange("f32", 0, 4),
        shape=[3, 0, 2],
    )
    run("reshape", "to_scalar", lambda a: jnp.reshape(a, ()), array([7], "i32"), shape=[])
    run("transpose", "reverse", jnp.transpose, x)
    for perm in ([1, 0, 2], [2, 0, 1], [0, 2, 1], [-1, 0, 1]):
        run("transpose", str(perm), lambda a, p=perm: jnp.transpose(a, p), x, axes=perm)
    for dtype in ("i8", "bf16", "f64", "bool"):
        small = arange("i32", 3, 5).astype(DTYPES[dtype])
        run("transpose", dtype, jnp.transpose, small)
    run("swapaxes", "0,-1", lambda a: jnp.swapaxes(a, 0, -1), x, axes=[0, -1])
    run("swapaxes", "1,2", lambda a: jnp.swapaxes(a, 1, 2), x, axes=[1, 2])
    run(
        "broadcast_to",
        "rows",
        lambda a: jnp.broadcast_to(a, (2, 3, 4)),
        arange("f32", 3, 1),
        shape=[2, 3, 4],
    )
    run(
        "broadcast_to",
        "scalar",
        lambda a: jnp.broadcast_to(a, (2, 2)),
        array(5, "i32"),
        shape=[2, 2],
    )
    run(
        "broadcast_to",
        "empty",
        lambda a: jnp.broadcast_to(a, (0, 3)),
        arange("f32", 1, 3),
        shape=[0, 3],
    )
    for label, shape, dims, operand in (
        ("trailing", [2, 3], [1], arange("f32", 3)),
        ("leading", [2, 3], [0], arange("f32", 2)),
        ("ends", [2, 5, 3], [0, 2], arange("i32", 2, 3)),
        ("stretch", [4, 3], [0, 1], arange("i32", 1, 3)),
        ("scalar", [2, 2], [], array(3.0, "f32")),
    ):
        run(
            "broadcast_in_dim",
            label,
            lambda a, s=shape, d=dims: lax.broadcast_in_dim(a, s, d),
            operand,
            shape=shape,
            dims=dims,
        )
    for axes in ([0], [-1], [0, 2], [1, -1]):
        run(
            "expand_dims",
            str(axes),
            lambda a, d=axes: jnp.expand_dims(a, d),
            arange("f32", 2, 3),
            axes=axes,
        )
    ones = arange("f32", 1, 3, 1)
    run("squeeze", "all", jnp.squeeze, ones)
    run("squeeze", "0", lambda a: jnp.squeeze(a, 0), ones, axes=[0])
    run("squeeze", "-1,0", lambda a: jnp.squeeze(a, (-1, 0)), ones, axes=[-1, 0])
    for label, reps in (("same_rank", [2, 1, 3]), ("fewer", [2]), ("more", [2, 1, 1, 2])):
        run("tile", label, lambda a, r=reps: jnp.tile(a, r), arange("i32", 2, 1, 2), reps=reps)
    for axis in (0, 1, -1):
        run(
            "repeat",
            str(axis),
            lambda a, d=axis: jnp.repeat(a, 3, axis=d),
            arange("i32", 2, 2),
            repeats=3,
            axis=axis,
        )
    run("flip", "all", jnp.flip, arange("i32", 2, 3))
    for axes in ([0], [-1], [0, 1]):
        run(
            "flip",
            str(axes),
            lambda a, d=tuple(axes): jnp.flip(a, d),
            arange("i32", 2, 3),
            axes=axes,
        )
    run("roll", "flat", lambda a: jnp.roll(a, 2), arange("i32", 2, 3), shift=[2])
    for label, shift, axes in (
        ("0", [1], [0]),
        ("-1", [-2], [-1]),
        ("wrap", [7], [1]),
        ("both", [1, 2], [0, 1]),
        ("twice", [1, 1], [1, 1]),
    ):
        run(
            "roll",
            label,
            lambda a, s=tuple(shift), d=tuple(axes): jnp.roll(a, s, d),
            arange("i32", 2, 3),
            shift=shift,
            axes=axes,
        )


def joining(topic):
    a, b, c = arange("f32", 2, 3), arange("f32", 1, 3, start=100), arange("f32", 0, 3)
    topic.run("concatenate/0", lambda *x: jnp.concatenate(x, 0), a, b, c, op="concatenate", axis=0)
    topic.run(
        "concatenate/-1",
        lambda *x: jnp.concatenate(x, -1),
        a,
        arange("f32", 2, 1, start=50),
        a,
        op="concatenate",
        axis=-1,
    )
    topic.run(
        "concatenate/promotes",
        lambda *x: jnp.concatenate(x, 0),
        arange("i8", 2),
        arange("f16", 3),
        op="concatenate",
        axis=0,
    )
    topic.run("concatenate/one", lambda *x: jnp.concatenate(x, 1), a, op="concatenate", axis=1)
    for axis in (0, 1, -1):
        topic.run(
            f"stack/{axis}",
            lambda *x, d=axis: jnp.stack(x, d),
            a,
            arange("f32", 2, 3, start=10),
            op="stack",
            axis=axis,
        )
    topic.run(
        "split/sections",
        lambda x: jnp.split(x, 3, 1),
        arange("i32", 2, 6),
        op="split",
        sections=3,
        axis=1,
    )
    topic.run(
        "split/indices",
        lambda x: jnp.split(x, [1, 4], -1),
        arange("i32", 2, 6),
        op="split",
        indices=[1, 4],
        axis=-1,
    )
    topic.run(
        "split/empty_piece",
        lambda x: jnp.split(x, [2, 2], 0),
        arange("i32", 3, 2),
        op="split",
        indices=[2, 2],
        axis=0,
    )
    topic.run(
        "unstack/1",
        lambda x: [x[:, k] for k in range(3)],
        arange("i32", 2, 3),
        op="unstack",
        axis=1,
    )
    for label, widths, value in (("zero", [[1, 2], [0, 1]], 0), ("value", [[0, 0], [2, 0]], -7)):
        topic.run(
            f"pad/{label}",
            lambda x, w=widths, v=value: jnp.pad(x, w, constant_values=v),
            arange("f32", 2, 3),
            op="pad",
            widths=widths,
            value=value,
        )
    for dtype in ("i8", "bf16", "bool"):
        topic.run(
            f"pad/{dtype}",
            lambda x: jnp.pad(x, [(1, 1)]),
            array([1, 1, 0], dtype),
            op="pad",
            widths=[[1, 1]],
            value=0,
        )


def slicing(topic):
    x = arange("i32", 4, 6)
    for label, start, limit, strides in (
        ("block", [1, 2], [3, 5], None),
        ("strided", [0, 1], [4, 6], [2, 3]),
        ("empty", [2, 2], [2, 6], None),
        ("whole", [0, 0], [4, 6], [1, 1]),
    ):
        params = {"strides": strides} if strides else {}
        topic.run(
            f"slice/{label}",
            lambda a, s=start, e=limit, t=strides: lax.slice(a, s, e, t),
            x,
            op="slice",
            start=start,
            limit=limit,
            **params,
        )


def dynamic(topic):
    """Starts are clamped so that the block lies inside, after a negative one has the extent added
    once (the numbering from the end, which JAX applies to concrete and traced starts alike)."""
    x = arange("i32", 4, 6)
    update = arange("i32", 2, 3, start=-1, step=-1)
    starts = {
        "inside": [1, 2],
        "past_end": [3, 5],
        "far": [100, 100],
        "negative": [-1, -6],
        "below": [-100, 0],
    }
    for label, start in starts.items():
        args = [array(s, "i32") for s in start]
        topic.run(
            f"dynamic_slice/{label}",
            lambda a, i, j: lax.dynamic_slice(a, (i, j), (2, 3)),
            x,
            *args,
            op="dynamic_slice",
            sizes=[2, 3],
        )
        topic.run(
            f"dynamic_update_slice/{label}",
            lambda a, u, i, j: lax.dynamic_update_slice(a, u, (i, j)),
            x,
            update,
            *args,
            op="dynamic_update_slice",
        )
    for dtype in ("i64", "u8"):
        topic.run(
            f"dynamic_slice/start_{dtype}",
            lambda a, i, j: lax.dynamic_slice(a, (i, j), (2, 3)),
            x,
            array(2, dtype),
            array(1, dtype),
            op="dynamic_slice",
            sizes=[2, 3],
        )
    for index in (0, 3, -1, 9):
        for axis, keepdims in ((0, True), (1, False)):
            topic.run(
                f"dynamic_index_in_dim/{index},{axis},{int(keepdims)}",
                lambda a, i, d=axis, k=keepdims: lax.dynamic_index_in_dim(a, i, d, k),
                x,
                array(index, "i32"),
                op="dynamic_index_in_dim",
                axis=axis,
                keepdims=keepdims,
            )


def gathering(topic):
    """take: negative indices count from the end, and what is out of range gives NaN, or the least
    value of a signed integer type, the greatest of an unsigned one (JAX's mode "fill")."""
    x = arange("f32", 3, 4)
    index = array([[0, 2], [-1, 1]], "i32")
    topic.run("take/flat", jnp.take, x, array([0, 11, 5, -1], "i32"), op="take")
    for axis in (0, 1, -1):
        topic.run(
            f"take/{axis}", lambda a, i, d=axis: jnp.take(a, i, d), x, index, op="take", axis=axis
        )
    topic.run("take/scalar", lambda a, i: jnp.take(a, i, 0), x, array(1, "i32"), op="take", axis=0)
    topic.run(
        "take/i64_index", lambda a, i: jnp.take(a, i, 0), x, array([2, 0], "i64"), op="take", axis=0
    )
    topic.run(
        "take/u8_index", lambda a, i: jnp.take(a, i, 0), x, array([2, 0], "u8"), op="take", axis=0
    )
    topic.run(
        "take/empty_index", lambda a, i: jnp.take(a, i, 1), x, array([], "i32"), op="take", axis=1
    )
    for dtype in ("f32", "i32", "u8", "bool"):
        operand = arange("i32", 3, 2).astype(DTYPES[dtype])
        topic.run(
            f"take/out_of_range_{dtype}",
            lambda a, i: jnp.take(a, i, 0),
            operand,
            array([1, 3, -4, -3], "i32"),
            op="take",
            axis=0,
        )

    def gather(label, operand, indices, offset, collapsed, start_map, sizes):
        numbers = lax.GatherDimensionNumbers(tuple(offset), tuple(collapsed), tuple(start_map))
        topic.run(
            f"gather/{label}",
            lambda a, i: lax.gather(a, i, numbers, sizes, mode=lax.GatherScatterMode.CLIP),
            operand,
            indices,
            op="gather",
            offset_dims=offset,
            collapsed_slice_dims=collapsed,
            start_index_map=start_map,
            slice_sizes=sizes,
        )

    # Out-of-range starts are clamped (JAX's mode "clip").
    gather("rows", x, array([[2], [0]], "i32"), [1], [0], [0], [1, 4])
    gather("columns", x, array([[3], [1], [0]], "i32"), [0], [1], [1], [3, 1])
    gather("points", x, array([[0, 0], [2, 3], [1, 1]], "i32"), [], [0, 1], [0, 1], [1, 1])
    gather("points_swapped", x, array([[0, 0], [3, 2], [1, 1]], "i32"), [], [0, 1], [1, 0], [1, 1])
    gather("blocks", x, array([[[0, 1]], [[1, 2]]], "i32"), [2, 3], [], [0, 1], [2, 2])
    gather("clamped", x, array([[9, 9], [-3, 1]], "i32"), [1, 2], [], [0, 1], [2, 2])
    for dtype in ("i32", "u8"):
        topic.run(
            f"one_hot/{dtype}",
            lambda i: jax.nn.one_hot(i, 4, dtype=jnp.float32),
            array([[0, 3], [2, 1]], dtype),
            op="one_hot",
            num_classes=4,
            dtype="f32",
        )
    topic.run(
        "one_hot/out_of_range",
        lambda i: jax.nn.one_hot(i, 3, dtype=jnp.int32),
        array([-1, 3, 1], "i32"),
        op="one_hot",
        num_classes=3,
        dtype="i32",
    )
    topic.run(
        "one_hot/scalar_bf16",
        lambda i: jax.nn.one_hot(i, 3, dtype=jnp.bfloat16),
        array(2, "i32"),
        op="one_hot",
        num_classes=3,
        dtype="bf16",
    )


def choosing(topic):
    pred = array([[True, False, True], [False, False, True]], "bool")
    x, y = arange("f32", 2, 3), arange("f32", 2, 3, start=-1, step=-1)
    topic.run("where/same", jnp.where, pred, x, y, op="where")
    topic.run(
        "where/broadcast", jnp.where, pred, arange("f32", 3), array([[10], [20]], "f32"), op="where"
    )
    topic.run("where/promotes", jnp.where, pred, arange("i32", 3), array(0.5, "bf16"), op="where")
    topic.run(
        "where/int_condition",
        jnp.where,
        array([0, 2, -1], "i32"),
        arange("i8", 3),
        array(9, "i8"),
        op="where",
    )
    topic.run(
        "where/nan",
        jnp.where,
        array([True, False], "bool"),
        array([1.0, 2.0], "f32"),
        array([float("nan")] * 2, "f32"),
        op="where",
    )
    topic.run("select/same", lax.select, pred, x, y, op="select")
    topic.run("select/scalar_pred", lax.select, array(False, "bool"), x, y, op="select")


def casting(topic):
    """Floats to integers saturate, and NaN becomes 0; integers wrap; anything but 0 is true."""
    floats = [
        0.0,
        -0.0,
        1.5,
        -1.5,
        2.5,
        0.1,
        255.75,
        65504.0,
        1e10,
        -1e10,
        float("inf"),
        -float("inf"),
        float("nan"),
    ]
    values = {
        "f32": array(floats + [16777217.0], "f32"),
        "f64": array(floats + [1e300, 0.1 + 2**-50, 2.0**63], "f64"),
        "bf16": array(floats, "f32").astype(DTYPES["bf16"]),
        "f16": array(floats[:8] + floats[10:], "f16"),
        "i32": array([0, 1, -1, 127, 128, -129, 65536, 2**31 - 1, -(2**31), 16777217], "i32"),
        "i64": array([0, -1, 2**31, 2**53 + 1, -(2**63)], "i64"),
        "u8": array([0, 1, 127, 128, 255], "u8"),
        "u32": array([0, 1, 2**31, 2**32 - 1], "u32"),
        "u64": array([0, 2**63, 2**64 - 1], "u64"),
        "i8": array([0, -1, 127, -128], "i8"),
        "bool": array([False, True], "bool"),
    }
    for source, x in values.items():
        for target in DTYPES:
            if target != source:
                topic.run(
                    f"astype/{source}_{target}",
                    lambda a, t=target: a.astype(DTYPES[t]),
                    x,
                    op="astype",
                    dtype=target,
                )
    pairs = [
        ("f32", "i32"),
        ("f32", "u32"),
        ("i32", "f32"),
        ("f64", "i64"),
        ("bf16", "u16"),
        ("f16", "i16"),
        ("i8", "u8"),
        ("f32", "u8"),
        ("i64", "i32"),
        ("f64", "bf16"),
    ]
    for source, target in pairs:
        x = (
            array([[1.0, -2.5], [0.0, 100.0]], source)
            if source in FLOATS
            else array([[1, -2], [0, 100]], source)
        )
        topic.run(
            f"bitcast/{source}_{target}",
            lambda a, t=target: lax.bitcast_convert_type(a, DTYPES[t]),
            x,
            op="bitcast",
            dtype=target,
        )
    narrow = array([[1, 2, 3, 4], [255, 0, 128, 63]], "u8")
    topic.run(
        "bitcast/u8_u32",
        lambda a: lax.bitcast_convert_type(a, jnp.uint32),
        narrow,
        op="bitcast",
        dtype="u32",
    )
    topic.run(
        "bitcast/i32_f64",
        lambda a: lax.bitcast_convert_type(a, jnp.float64),
        array([[0, 1072693248]], "i32"),
        op="bitcast",
        dtype="f64",
    )


def parse_index(text, arrays):
    def term(t):
        t = t.strip()
        if t == "none":
            return None
        if t == "...":
            return Ellipsis
        if t[0] == "i":
            return arrays[int(t[1:])]
        if ":" in t:
            return slice(*[int(v) if v else None for v in t.split(":")])
        return int(t)

    return tuple(term(t) for t in text.split(","))


def indexing(topic):
    x = arange("i32", 4, 5, 3)
    rows, more = array([3, 0, -1], "i32"), array([[1, 2], [0, -2]], "i32")
    for text in (
        "0",
        "-1",
        "1,2",
        "1,-2,0",
        "1:",
        ":-1",
        "1:3,2",
        ":,1:5:2",
        "::2,::-1",
        "3:0:-1",
        "::-2,4,none",
        "none",
        "none,:,2,none,1:",
        ":,:,-1",
        "-3:-1",
        "2:2",
        "5:,:",
        ":100,-100:2",
    ):
        topic.run(
            f"index/[{text}]", lambda a, t=text: a[parse_index(t, [])], x, op="index", index=text
        )
    for text in ("i0", "i1", ":,i0", ":,:,i1", "i0,2", "1,i0", "i0,:,none", "i0,1:4:2", "1:,i0,0"):
        operands = [rows, more % 3 if text == ":,:,i1" else more]
        used = [operands[0] if "i0" in text else operands[1]]
        term = text.replace("i1", "i0")
        if term in (":,i0", ":,:,i1") or ":,:" in term:
            used = [used[0] % 3]
        name = f"index/[{text}]"
        topic.run(
            name, lambda a, i, t=term: a[parse_index(t, [i])], x, used[0], op="index", index=term
        )
    topic.run(
        "index/[i0,i1]",
        lambda a, i, j: a[i, j],
        x,
        rows,
        array([0, 4, 2], "i32"),
        op="index",
        index="i0,i1",
    )
    topic.run(
        "index/[i0,:,i1]",
        lambda a, i, j: a[i, :, j],
        x,
        rows,
        array([0, 1, 2], "i32"),
        op="index",
        index="i0,:,i1",
    )
    topic.run(
        "index/[i0,i1] broadcast",
        lambda a, i, j: a[i, j],
        x,
        rows.reshape(3, 1),
        array([[0, 4]], "i32"),
        op="index",
        index="i0,i1",
    )
    topic.run(
        "index/[scalar array]", lambda a, i: a[i], x, array(-2, "i32"), op="index", index="i0"
    )
    topic.run(
        "index/[clamped]", lambda a, i: a[i], x, array([7, -9], "i32"), op="index", index="i0"
    )
