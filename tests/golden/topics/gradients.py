"""Gradients of functions under shard_map on 8 host devices, with and without checked variance.

A case has params mesh (sizes), names, in_specs and out_specs (a text a spec), check_vma and body.
Inputs: the arguments. Outputs: the loss (the sum of the results times cos(k) for element k, results
one after the other), its gradient for each argument, and the derivative of the loss along tangents
sin(k + 1) for element k of each argument.

A case whose name starts with "in_body" takes gradients inside of the body: its outputs are the
results themselves.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .common import DTYPES, Topic
from .shard_map_runner import make_mesh, spec

M8 = ((8,), ("i",))
M24 = ((2, 4), ("data", "model"))


def wave(*shape, step=0.7, start=0.3):
    n = int(np.prod(shape))
    return np.sin(start + step * np.arange(n)).reshape(shape).astype(DTYPES["f64"])


def mapped(fn, mesh, in_specs, out_specs, check):
    outs = tuple(map(spec, out_specs)) if len(out_specs) != 1 else spec(out_specs[0])
    return jax.shard_map(
        fn,
        mesh=make_mesh(*mesh),
        in_specs=tuple(map(spec, in_specs)),
        out_specs=outs,
        check_vma=check,
    )


def ring_matmul(lhs, rhs):
    n = lax.axis_size("i")
    index = lax.axis_index("i")
    rows = lhs.shape[0]
    out = jnp.zeros((n * rows, rhs.shape[1]), lhs.dtype) + 0 * lhs[0, 0] + 0 * rhs[0, 0]
    for step in range(n):
        row = (index + step) % n * rows
        out = lax.dynamic_update_slice(out, lhs @ rhs, (row, jnp.zeros_like(row)))
        if step + 1 < n:
            lhs = lax.ppermute(lhs, "i", [(k, (k - 1) % n) for k in range(n)])
    return out


def mlp(x, w0, b0, w1, b1):
    return jnp.tanh(x @ w0 + b0) @ w1 + b1


def squares(y, t):
    return jnp.mean(jnp.sum(jnp.square(y - t), 1))


# name: (body, mesh, in_specs, out_specs, arguments)
def programs(check):
    swap = [(k, (k + 1) % 8) for k in range(7)]
    return {
        "example1": (
            lambda x: lax.psum(jnp.sum(jnp.sin(x)), "i"),
            M8,
            ["i"],
            [""],
            [wave(24, 4)],
        ),
        "example2": (
            lambda x, y: lax.psum(jnp.sum(jnp.sin(x)), "i") * y,
            M8,
            ["i", "i"],
            ["i"],
            [wave(8, 3), wave(16)],
        ),
        "example3": (lambda x: x, M8, [""], [""], [wave(5)]),
        # Unchecked, JAX transposes the invariant gather to a slice all the same, after it shared out
        # the cotangent, and gives an eighth of the gradient; the varying one is right there.
        "example4": (
            lambda x: lax.all_gather(
                jnp.sin(x), "i", tiled=True, to="invarying" if check else "varying"
            ),
            M8,
            ["i"],
            [""],
            [wave(16)],
        ),
        "example5": (
            lambda x, y: lax.all_gather(x, "i", tiled=True) * y,
            M8,
            ["i", "i"],
            ["i"],
            [wave(8), wave(64, step=0.3)],
        ),
        "fan_out": (
            lambda x: jnp.exp(x) * (1.0 + lax.axis_index("i")),
            M8,
            [""],
            ["i"],
            [wave(3)],
        ),
        "data_parallel_mlp": (
            lambda x, t, w0, b0, w1, b1: lax.pmean(squares(mlp(x, w0, b0, w1, b1), t), "i"),
            M8,
            ["i,none", "i,none", "", "", "", ""],
            [""],
            [wave(16, 3), wave(16, 2), wave(3, 5), wave(5), wave(5, 2), wave(2)],
        ),
        "data_and_model_parallel_mlp": (
            lambda x, t, w0, b0, w1, b1: lax.pmean(
                squares(lax.psum(jnp.tanh(x @ w0 + b0) @ w1, "model") + b1, t), "data"
            ),
            M24,
            ["data,none", "data,none", "none,model", "model", "model,none", ""],
            [""],
            [wave(4, 3), wave(4, 2), wave(3, 8), wave(8), wave(8, 2), wave(2)],
        ),
        "fully_sharded_mlp": (
            lambda x, t, w0, w1: lax.pmean(
                squares(
                    jnp.tanh(x @ lax.all_gather(w0, "i", tiled=True))
                    @ lax.all_gather(w1, "i", axis=1, tiled=True),
                    t,
                ),
                "i",
            ),
            M8,
            ["i,none", "i,none", "i,none", "none,i"],
            [""],
            [wave(8, 8), wave(8, 16), wave(8, 4), wave(4, 16)],
        ),
        "sharded_over_both_axes": (
            lambda x, w: lax.psum(
                jnp.sum(jnp.sin(x @ lax.all_gather(w, "data", axis=1, tiled=True)), 0),
                ("model", "data"),
            ),
            M24,
            ["data,model", "model,data"],
            [""],
            [wave(4, 8), wave(8, 6)],
        ),
        "collective_matmul": (
            lambda a, b: jnp.tanh(ring_matmul(a, b)),
            M8,
            ["i,none", "none,i"],
            ["none,i"],
            [wave(16, 3), wave(3, 8)],
        ),
        "matmul_reduce_scatter": (
            lambda a, b: jnp.sin(
                lax.psum_scatter(a @ b, "model", scatter_dimension=1, tiled=True)
            ),
            M24,
            ["data,model", "model,none"],
            ["data,model"],
            [wave(4, 8), wave(8, 4)],
        ),
        "all_to_all": (
            lambda x: jnp.exp(lax.all_to_all(jnp.sin(x), "i", 1, 0, tiled=True)),
            M8,
            ["i,none"],
            ["none,i"],
            [wave(8, 8)],
        ),
        "all_to_all_untiled": (
            lambda x: jnp.sin(lax.all_to_all(jnp.square(x), "i", 1, 1)),
            M8,
            ["i,none"],
            ["i,none"],
            [wave(16, 8)],
        ),
        "open_ring": (
            lambda x: x * lax.ppermute(jnp.sin(x), "i", swap),
            M8,
            ["i"],
            ["i"],
            [wave(24)],
        ),
        "residuals_of_every_kind": (
            lambda w, x: lax.psum(
                jnp.sum(jnp.cos(w) * jnp.square(x))
                * jnp.sin(jnp.sum(x))
                * jnp.exp(0.01 * lax.psum(jnp.sum(x), "i")),
                "i",
            ),
            M8,
            ["", "i"],
            [""],
            [wave(3), wave(24)],
        ),
        "two_results": (
            lambda x, y: (lax.psum(x * y, "data"), jnp.sin(lax.all_gather(x, "data"))),
            M24,
            ["data", "model"],
            ["model", "none,data"],
            [wave(4), wave(8)],
        ),
    }


def losses(fn, results):
    def loss(*args):
        out = fn(*args)
        flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(out)])
        return jnp.sum(flat * jnp.cos(jnp.arange(flat.size, dtype=flat.dtype)))

    return loss


def make():
    topic = Topic("gradients through shard_map on 8 devices, in both modes of variance checking.")
    for check in (True, False):
        for name, (body, mesh, in_specs, out_specs, args) in programs(check).items():
            loss = losses(mapped(body, mesh, in_specs, out_specs, check), len(out_specs))
            numbers = tuple(range(len(args)))
            given = [jnp.asarray(x) for x in args]
            value, gradient = jax.block_until_ready(
                jax.jit(jax.value_and_grad(loss, argnums=numbers))(*given)
            )
            tangents = [jnp.sin(jnp.arange(x.size, dtype=x.dtype) + 1).reshape(x.shape) for x in given]
            _, slope = jax.block_until_ready(
                jax.jit(lambda p, t, f=loss: jax.jvp(f, p, t))(tuple(given), tuple(tangents))
            )
            topic.add(
                f"{name}/{'typed' if check else 'unchecked'}",
                args,
                [value, *gradient, slope],
                mesh=list(mesh[0]),
                names=list(mesh[1]),
                in_specs=in_specs,
                out_specs=out_specs,
                check_vma=check,
                atol=1e-12,
            )
    # The gradient of an argument that is the same on all devices is their sum if variance is
    # checked.
    for check in (True, False):
        in_specs, out_specs = ["", "i"], ["" if check else "i"]
        args = [wave(2), wave(16)]
        step = mapped(
            lambda w, x: jax.grad(lambda v: jnp.sum(jnp.sin(v) * x))(w), M8, in_specs, out_specs, check
        )
        out = jax.block_until_ready(jax.jit(step)(*map(jnp.asarray, args)))
        topic.add(
            f"in_body/{'typed' if check else 'unchecked'}",
            args,
            [out],
            mesh=[8],
            names=["i"],
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=check,
            atol=1e-12,
        )
    return topic
