"""Indexed reading and functional updates, slices along one dim, triangles, diagonals and norms.

A case's name is its program's, which tests/ops/golden_indexing_test.cpp has in C++. Where an index
array names an element twice, set keeps the last, as NumPy does and JAX on a CPU.
"""

import jax
import jax.numpy as jnp
from jax import lax

from .common import Topic, arange, array


def make():
    topic = Topic(__doc__)
    m, cube = arange("f32", 4, 3, start=-5), arange("f32", 2, 3, 4, start=-7)
    v, rows = arange("f32", 6, start=1), array([2, 0, -1, 2], "i32")
    other = array([0, 1, -1, 9], "i32")
    grid = array([[0, 1], [-1, 1]], "i32")

    topic.run("ellipsis_last", lambda x: x[..., 1], cube)
    topic.run("ellipsis_first", lambda x: x[1, ...], cube)
    topic.run("ellipsis_between", lambda x: x[1, ..., 2:], cube)
    topic.run("ellipsis_none", lambda x: x[0, 1, 2, ...], cube)
    topic.run("ellipsis_new", lambda x: x[None, ..., None, 0], cube)
    topic.run("ellipsis_array", lambda x, i: x[..., i], cube, rows)

    topic.run("set_int", lambda x: x.at[1].set(9), m)
    topic.run("set_box", lambda x, y: x.at[1:3, -2:].set(y), m, m[:2, :2])
    topic.run("set_all", lambda x: x.at[...].set(2), m)
    topic.run("set_row", lambda x, y: x.at[2, :].set(y), m, v[:3])
    topic.run("set_steps", lambda x, y: x.at[::2, ::-1].set(y), m, m[:2])
    topic.run("set_back", lambda x, y: x.at[3:0:-1].set(y), m, m[:3] * 10)
    topic.run("set_new", lambda x, y: x.at[:, None, 1].set(y), m, m[:, :1])
    topic.run("set_last", lambda x, y: x.at[..., 0].set(y), cube, m[:2, :3])
    topic.run("set_rows", lambda x, i, y: x.at[i].set(y), m, rows, m + 100)
    topic.run("set_pairs", lambda x, i, j, y: x.at[i, j].set(y), m, rows, other, v[:4])
    topic.run("set_apart", lambda x, i, y: x.at[i, :, 1].set(y), cube, grid, arange("f32", 3))
    topic.run("set_middle", lambda x, i, y: x.at[:, i, 1:3].set(y), cube, grid, m[:2, :2])
    topic.run("set_mixed", lambda x, i, y: x.at[1, i, ::3].set(y), cube, rows, v[:2])
    topic.run("set_empty", lambda x: x.at[2:2].set(7), m)
    topic.run("set_ints", lambda x, i: x.at[i].set(-1), arange("i8", 5), rows)
    topic.run("set_bools", lambda x, i: x.at[i].set(True), m[:, 0] > 0, rows[1:2])
    topic.run("set_traced", lambda x, i: x.at[i, 1:].set(5), m, array(2, "i32"))
    topic.run("set_outside", lambda x, i: x.at[i].set(5), m, array(7, "i32"))
    topic.run("add_int", lambda x: x.at[1, 2].add(9), m)
    topic.run("add_rows", lambda x, i, y: x.at[i].add(y), m, rows, m)
    topic.run("add_outside", lambda x, i: x.at[:, i].add(5), m, other)
    topic.run("mul_box", lambda x: x.at[:2, 1].mul(3), m)
    topic.run("mul_rows", lambda x, i, y: x.at[i].mul(y), m, rows, m)
    topic.run("min_rows", lambda x, i, y: x.at[i].min(y), m, rows, -m)
    topic.run("max_rows", lambda x, i, y: x.at[i].max(y), m, rows, -m)
    topic.run("max_box", lambda x: x.at[1:].max(0), m)
    topic.run("max_ints", lambda x, i, y: x.at[i].max(y), arange("u16", 5), rows, arange("u16", 4))
    topic.run("get_rows", lambda x, i: x.at[i, 1].get(), m, rows)

    topic.run("subtract_rows", lambda x, i, y: x.at[i].subtract(y), m, rows, m)
    topic.run("subtract_box", lambda x, y: x.at[1:3, 0].subtract(y), arange("u8", 4, 3), array([2, 9], "u8"))
    topic.run("multiply_rows", lambda x, i, y: x.at[i].multiply(y), m, rows, m)
    topic.run("divide_rows", lambda x, i, y: x.at[i].divide(y), m, rows, m + 0.5)
    topic.run("divide_box", lambda x, y: x.at[1:, :2].divide(y), m, m[1:, :2] + 0.5)
    topic.run("divide_steps", lambda x: x.at[::2, 1].divide(3), m)
    topic.run("divide_ints", lambda x, i, y: x.at[i].divide(y), arange("i32", 5), rows, array([2, 3, 4, 5], "i32"))
    topic.run("divide_ints_box", lambda x: x.at[1:3].divide(2), arange("i32", 5, start=1))
    topic.run("power_rows", lambda x, i, y: x.at[i].power(y), abs(m) + 1, rows, m / 4, ulp=4)
    topic.run("power_box", lambda x: x.at[1:, 0].power(3), m, ulp=4)
    topic.run("power_ints", lambda x, i: x.at[i].power(2), arange("i32", 5, start=-2), rows)
    topic.run("apply_box", lambda x: x.at[1:3, 1].apply(lambda v: v * v + 1), m)
    topic.run("apply_rows", lambda x, i: x.at[i].apply(lambda v: 2 * v + 1), m, rows)
    topic.run("apply_often", lambda x, i: x.at[i].apply(lambda v: v * 3 - 1), v, array([5, -1, 0, 5, 2, 5, 9, 9], "i32"))
    topic.run("apply_outside", lambda x, i: x.at[:, i].apply(lambda v: v - 7), m, other)
    topic.run("apply_clip", lambda x, i: x.at[i].apply(jnp.square, mode="clip"), m, other)
    topic.run("apply_scalar", lambda x, i: x.at[i].apply(lambda v: -v), v, array(-2, "i32"))

    far = array([9, -9, 1, 4, 1], "i32")
    clip_values = arange("f32", 5, 3, start=10)
    topic.run("set_clip", lambda x, i: x.at[i, 2].set(5, mode="clip"), m, far)
    topic.run("add_clip", lambda x, i, y: x.at[i].add(y, mode="clip"), m, far, clip_values)
    topic.run("subtract_clip", lambda x, i, y: x.at[i].subtract(y, mode="clip"), m, far, clip_values)
    topic.run("mul_clip", lambda x, i, y: x.at[i].multiply(y, mode="clip"), m, far, clip_values)
    topic.run("divide_clip", lambda x, i, y: x.at[i].divide(y, mode="clip"), m, far, clip_values)
    topic.run("max_clip", lambda x, i: x.at[i].max(1, mode="clip"), m, array([200, 1], "u8"))
    topic.run("divide_drop", lambda x, i: x.at[i].divide(2, mode="drop"), m, far)
    topic.run("power_drop", lambda x, i: x.at[i].power(2, mode="drop"), m, far)
    topic.run("get_clip", lambda x, i: x.at[i].get(mode="clip"), m, far)
    topic.run("get_fill", lambda x, i: x.at[..., i].get(mode="fill"), cube, far)
    topic.run("get_fill_ints", lambda x, i: x.at[i].get(mode="fill"), arange("i16", 5), far)
    topic.run("get_fill_value", lambda x, i, j: x.at[i, 1:, j].get(mode="fill", fill_value=-1), cube, far - 1, far)
    topic.run("get_fill_scalar", lambda x, i: x.at[i, 1].get(mode="fill", fill_value=7), m, array(4, "i32"))

    def loss(x, y, i):
        return (x.at[i].set(y) ** 2).sum() + (x.at[1:, 0].add(y[0, 0]) ** 3).sum()

    def unique(x, y):
        product = x.at[jnp.array([2, 0])].mul(y, unique_indices=True)
        return (product**2).sum() + (x.at[::2].max(y) ** 2).sum()

    def quotients(x, y):
        at = dict(unique_indices=True)
        rows = jnp.array([2, 0])
        one = x.at[rows].divide(y, **at) ** 2 + x.at[rows].subtract(y, **at) ** 3
        return one.sum() + x.at[1:3].divide(y).sum()

    def powers(x, y):
        return (x.at[jnp.array([2, 0])].power(y, unique_indices=True) * x).sum()

    def filled(x, y):
        i = jnp.array([5, -1, 2])
        read = x.at[i].get(mode="fill", fill_value=3.0) * y[0]
        return (read * x.at[i].get(mode="clip")).sum() + (x.at[i].add(y[1], mode="clip") ** 2).sum()

    topic.run("grad_divide", jax.grad(quotients, (0, 1)), m + 0.5, m[:2] + 1.5, ulp=8)
    topic.run("grad_power", jax.grad(powers, (0, 1)), abs(m) + 1, m[:2] / 4, ulp=16)
    topic.run("grad_modes", jax.grad(filled, (0, 1)), m, m[:2] + 1, ulp=4)
    topic.run("vmap_apply", jax.vmap(lambda x, i: x.at[i].apply(jnp.negative)), m, grid[jnp.array([0, 1, 1, 0])])
    topic.run("grad_set", jax.grad(loss, (0, 1)), m, m[:2] + 1, rows[:2])
    topic.run("grad_mul", jax.grad(unique, (0, 1)), m, m[:2] + 0.5, ulp=4)
    topic.run("vmap_add", jax.vmap(lambda x, i: x.at[i].add(1)), m, rows)

    topic.run("slice_in_dim", lambda x: lax.slice_in_dim(x, 1, -1, 2, axis=2), cube)
    topic.run("dynamic_in_dim", lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, axis=1), cube, rows[0])
    topic.run(
        "update_in_dim",
        lambda x, y, i: lax.dynamic_update_slice_in_dim(x, y, i, axis=-1),
        cube,
        cube[..., :2] * 10,
        array(1, "i32"),
    )
    topic.run("index_in_dim", lambda x: lax.index_in_dim(x, -1, 1), cube)
    topic.run("index_in_dim_squeezed", lambda x: lax.index_in_dim(x, 1, -1, keepdims=False), cube)
    for name, index in (("inside", 1), ("from_end", -1), ("clamped", 7)):
        topic.run(
            f"update_index_{name}",
            lambda x, y, i: lax.dynamic_update_index_in_dim(x, y, i, -2),
            cube,
            cube[:, 0] * 10,
            array(index, "i32"),
        )
    topic.run(
        "update_index_of_rank",
        lambda x, y, i: lax.dynamic_update_index_in_dim(x, y, i, 1),
        cube,
        cube[:, :1] * 10,
        array(2, "i32"),
    )
    topic.run(
        "update_index_scalar", lambda x, y, i: lax.dynamic_update_index_in_dim(x, y, i, 0), v, v[0] * 9, array(3, "i32")
    )

    def moved(x, y, i):
        rows = lax.dynamic_update_index_in_dim(x, y, i, 0) ** 2
        return rows.sum() + (lax.index_in_dim(x, -1, 1, keepdims=False) ** 3).sum()

    topic.run("grad_index_in_dim", jax.grad(moved, (0, 1)), m, m[0] + 1, array(2, "i32"))
    topic.run(
        "vmap_index_in_dim",
        jax.vmap(lambda x, y, i: lax.dynamic_update_index_in_dim(x, y, i, 0) + lax.index_in_dim(x, 2)),
        m,
        v[:4],
        rows,
    )

    for k in (-2, 0, 1):
        name = str(k).replace("-", "minus")
        topic.run(f"tril_{name}", lambda x, k=k: jnp.tril(x, k), cube, k=k)
        topic.run(f"triu_{name}", lambda x, k=k: jnp.triu(x, k), cube, k=k)
        topic.run(f"diag_{name}", lambda x, k=k: jnp.diag(x, k), m, k=k)
        topic.run(f"diag_of_vector_{name}", lambda x, k=k: jnp.diag(x, k), v[:3], k=k)
        topic.run(f"trace_{name}", lambda x, k=k: jnp.trace(x, k), m, k=k)
    topic.run("diagonal", lambda x: jnp.diagonal(x, 1, 2, 0), cube)
    topic.run("trace_of_cube", lambda x: jnp.trace(x, 0, 1, 2), cube)

    norm = jnp.linalg.norm
    topic.run("norm", norm, cube, ulp=8)
    topic.run("norm_axis", lambda x: norm(x, axis=1, keepdims=True), cube, ulp=8)
    topic.run("norm_matrix", lambda x: norm(x, axis=(0, 2)), cube, ulp=8)
    for name, ord in {"inf": jnp.inf, "minus_inf": -jnp.inf, "one": 1, "minus_one": -1}.items():
        topic.run(f"norm_{name}", lambda x, o=ord: norm(x, o), v, ulp=8)
        topic.run(f"norm_matrices_{name}", lambda x, o=ord: norm(x, o, (2, 1)), cube, ulp=8)
    topic.run("norm_zero", lambda x: norm(x, 0), m[:, 0] + 2, ulp=8)
    topic.run("norm_three", lambda x: norm(x, 3), v, ulp=8)
    topic.run("norm_ints", norm, arange("i32", 4), ulp=8)
    return topic
