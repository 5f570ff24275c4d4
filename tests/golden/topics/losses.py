"""Gradients of losses and layers: what users differentiate.

A case's name is its program's, which tests/transforms/autodiff/golden_losses_test.cpp has in C++.
"""

import jax
import jax.numpy as jnp
import numpy as np

from .common import DTYPES, Topic


def wave(dtype, *shape, step=0.7, start=0.3):
    n = int(np.prod(shape))
    return np.sin(start + step * np.arange(n)).reshape(shape).astype(DTYPES[dtype])


def mlp_loss(w0, b0, w1, b1, x, y):
    hidden = jnp.tanh(x @ w0 + b0)
    return jnp.mean((hidden @ w1 + b1 - y) ** 2)


def layer_norm_loss(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    normed = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return jnp.sum(jnp.sin(normed * scale + bias))


def cross_entropy(w, x, labels):
    logits = x @ w
    rows = jnp.arange(labels.shape[0])
    return -jnp.mean(jax.nn.log_softmax(logits, -1)[rows, labels])


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def make():
    topic = Topic(__doc__)
    for d in ("f32", "f64"):
        near = {"ulp": 32, "atol": {"f32": 2e-6, "f64": 1e-14}[d]}
        steep = {"ulp": 32, "atol": {"f32": 1e-4, "f64": 1e-12}[d]}  # values of some hundreds
        arrays = [
            wave(d, 4, 8),
            wave(d, 8, step=0.2),
            wave(d, 8, 2, step=0.5),
            wave(d, 2, step=1.1),
            wave(d, 8, 4, step=1.3),
            wave(d, 8, 2, step=0.9),
        ]

        def flat(fn, argnums):
            def run(*args):
                value, gradients = jax.value_and_grad(fn, argnums)(*args)
                return (value, *gradients)

            return run

        topic.run(f"mlp/{d}", flat(mlp_loss, (0, 1, 2, 3)), *arrays, **near)
        topic.run(
            f"layer_norm/{d}",
            flat(layer_norm_loss, (0, 1, 2)),
            wave(d, 3, 8),
            wave(d, 8, step=0.4),
            wave(d, 8, step=0.9),
            **near,
        )
        topic.run(
            f"cross_entropy/{d}",
            flat(cross_entropy, (0, 1)),
            wave(d, 4, 5),
            wave(d, 6, 4, step=1.7),
            np.array([0, 3, 4, 1, 1, 2], np.int32),
            **near,
        )
        small = wave(d, 4, step=0.9)
        topic.run(f"hessian/{d}", jax.hessian(rosenbrock), small, **steep)
        topic.run(
            f"jacobian/{d}",
            jax.jacrev(lambda x: jnp.tanh(jnp.outer(x, x))),
            small,
            **near,
        )
        topic.run(
            f"hessian_vector/{d}",
            lambda x, v: jax.jvp(jax.grad(rosenbrock), (x,), (v,))[1],
            small,
            wave(d, 4, step=2.1),
            **steep,
        )
    return topic
