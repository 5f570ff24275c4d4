"""The transformer layer of examples/transformer/layer.h and its gradients, on whole arrays.

Kinds: `forward` (a whole sequence; inputs x, norm, q_wi, kv, o_wo, cotangent; outputs y, k, v and the
gradients with respect to x and the four weights) and `cached` (rows from `start` on behind a cache;
inputs x, norm, q_wi, kv, o_wo, cached k, cached v; outputs y, k, v). atol is a bound for the values,
grad_atol for the gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .common import DTYPES, Topic

B, E, H, D, F = 4, 16, 8, 4, 3


def wave(dtype, shape, start, scale=1.0):
    n = int(np.prod(shape))
    return (scale * np.sin(start + 0.7 * np.arange(n) ** 1.1)).reshape(shape).astype(DTYPES[dtype])


def layer_norm(x, scale):
    x = x.astype(jnp.float32)
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * scale.astype(jnp.float32)


def rope(start, t):
    rows, half = t.shape[1], t.shape[-1] // 2
    turns = 10000.0 ** (-np.arange(half, dtype=np.float64) / half)
    angles = (start + np.arange(rows))[:, None, None] * turns
    sin, cos = np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)
    a, b = jnp.split(t.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(t.dtype)


def layer(x, norm, q_wi, kv, o_wo, start=0, cache=None):
    dtype = q_wi.dtype
    n = layer_norm(x, norm).astype(dtype)
    wide = jnp.einsum("bte,hed->bthd", n, q_wi)
    q, wi0, wi1 = wide[..., :D], wide[..., D : D + F], wide[..., D + F :]
    both = jnp.einsum("bte,ezd->btzd", n, kv)
    q, k, v = rope(start, q), rope(start, both[..., :D]), both[..., D:]
    mask = None
    if cache is not None:
        k, v = (lax.dynamic_update_slice(c, t, (0, start, 0, 0)) for c, t in zip(cache, (k, v)))
        rows, columns = x.shape[1], k.shape[1]
        mask = (start + np.arange(rows)[:, None] >= np.arange(columns))[None, None]
    attended = jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=cache is None)
    gated = jax.nn.silu(wi0.astype(jnp.float32)).astype(dtype) * wi1
    fused = jnp.concatenate([attended, gated], -1)
    return x + jnp.einsum("bthd,hde->bte", fused, o_wo).astype(x.dtype), k, v


def weights(dtype):
    return (
        1 + wave(dtype, (E,), 0.2, 0.3).astype(DTYPES[dtype]),
        wave(dtype, (H, E, D + 2 * F), 1.3, 0.4),
        wave(dtype, (E, 1, 2 * D), 2.1, 0.4),
        wave(dtype, (H, D + F, E), 0.6, 0.3),
    )


def make():
    topic = Topic(__doc__)
    for dtype in ("f32", "bf16"):
        bounds = {
            "f32": {"atol": 5e-6, "grad_atol": 3e-5},
            "bf16": {"atol": 0.06, "grad_atol": 0.25},
        }[dtype]

        def forward(x, norm, q_wi, kv, o_wo, ct):
            y, pullback, rows = jax.vjp(
                lambda *a: (lambda y, k, v: (y, (k, v)))(*layer(*a)),
                x, norm, q_wi, kv, o_wo, has_aux=True,
            )
            return (y, *rows, *pullback(ct))

        x = wave(dtype, (B, 6, E), 0.3)
        ct = wave(dtype, (B, 6, E), 0.9)
        topic.run(f"forward/{dtype}", jax.jit(forward), x, *weights(dtype), ct, kind="forward",
                  start=0, ulp=16, **bounds)
        for name, start, rows in (("prefill", 0, 5), ("decode", 5, 1), ("several", 3, 2)):
            def cached(x, norm, q_wi, kv, o_wo, k, v, start=start):
                return layer(x, norm, q_wi, kv, o_wo, start, (k, v))

            cache = [wave(dtype, (B, 8, 1, D), s) for s in (1.9, 2.7)]
            for c in cache:
                c[:, start:] = 0
            topic.run(f"{name}/{dtype}", jax.jit(cached), wave(dtype, (B, rows, E), 0.4),
                      *weights(dtype), *cache, kind="cached", start=start, ulp=16, **bounds)
    return topic
