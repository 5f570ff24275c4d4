"""vmap of composed functions, with axes of every kind, nested, and around and inside derivatives.

A case's name is its program's, which tests/transforms/vmap/golden_vmap_test.cpp has in C++. Values
are small integers, so that sums and products are exact in any order; those of a transcendental
function have a tolerance.
"""

import jax
import jax.numpy as jnp
from jax import lax

from .common import Topic, arange, array


def make():
    topic = Topic(__doc__)
    m, v = arange("f32", 4, 3, start=-5), arange("f32", 3, start=1)
    cube = arange("f32", 2, 3, 4, start=-7)
    index = array([2, -1, 7, 0], "i32")

    def affine(w, b, x):
        return w @ x + b

    bias = array([1, 2, 3, 4], "f32")
    topic.run("affine", jax.vmap(affine, (None, None, 0)), m, bias, m[:, :3])
    topic.run("affine_each", jax.vmap(affine, (0, 1, None), 1), cube, cube[0, :, :2], m[:, 0])

    def distances(a):
        one = lambda x, y: ((x - y) ** 2).sum()
        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(a, a)

    topic.run("distances", distances, m)
    topic.run("out_last", jax.vmap(lambda a: (a * 2, a.sum(0)), -1, (-1, 0)), cube)

    def ordered(a, k):
        return jnp.sort(a), jnp.argmax(a).astype("int32"), a[k]

    topic.run("sorted", jax.vmap(ordered, (1, 0)), cube[0] % 5, index)

    def part(a, k):
        return lax.dynamic_slice(a, (k,), (2,))

    def row_part(a, k):
        return lax.dynamic_slice(a, (k, jnp.int32(0)), (1, 2))

    topic.run("slices", jax.vmap(part, (None, 0)), arange("f32", 6), index)
    topic.run("slices_each", jax.vmap(row_part), arange("f32", 4, 3, 3), index)
    topic.run(
        "updates",
        jax.vmap(lambda a, u, k: lax.dynamic_update_slice(a, u, (k,)), (None, 0, 0)),
        arange("f32", 5),
        arange("f32", 4, 2, start=10),
        index,
    )

    def halve(n):
        return lax.while_loop(
            lambda c: c[0] > 1, lambda c: (c[0] // 2, c[1] + 1), (n, jnp.int32(0))
        )

    topic.run("halvings", jax.vmap(halve), array([90, 0, 7, 1024], "i32"))

    def branch(p, x):
        return lax.cond(p > 0, lambda a: a * 2, lambda a: jnp.cumsum(a), x)

    topic.run("branches", jax.vmap(branch), index, m)

    def running(c, xs):
        return lax.scan(lambda s, x: (s * 2 + x, s), c, xs)

    topic.run("scan", jax.vmap(running, (0, None)), array([1, 2], "f32"), v)

    def loss(w, x):
        return (jnp.tanh(w * x) * x).sum()

    small = array([[0.5, -0.25, 0.125], [0.25, 0, 0.25]], "f32")
    near = {"ulp": 8, "atol": 1e-6}

    def mean_loss(w, x):
        return jax.vmap(loss, (None, 0))(w, x).mean()

    topic.run("gradients", jax.vmap(jax.grad(loss), (None, 0)), v, small, **near)
    topic.run("gradient_of_mean", jax.grad(mean_loss), v, small, **near)
    topic.run("hessian", jax.vmap(jax.hessian(loss), (None, 0)), v, small, **near)
    return topic
