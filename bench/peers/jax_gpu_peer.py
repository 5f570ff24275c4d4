"""The rows in JAX on one GPU. Calls are queued, and waited for once a batch."""

import math
import os
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cuda")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others share the GPU's memory
os.environ["BENCH_DEVICES"] = "1"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jaxlib  # noqa: E402
import numpy as np  # noqa: E402

import gpu_sizes as sizes  # noqa: E402
import jax_peer  # noqa: E402
from jax_peer import close, random_floats  # noqa: E402
from protocol import Row, serve  # noqa: E402

# Products of f32 are f32, as the others' are, not TF32.
jax.config.update("jax_default_matmul_precision", "highest")


def queued(f, args, check):
    """A result is dropped before the next call, so that its memory is reused, as on our side."""
    last = []

    def time_batch(n):
        last.clear()
        result = None
        start = time.perf_counter()
        for _ in range(n):
            del result
            result = f(*args)
        jax.block_until_ready(result)
        seconds = time.perf_counter() - start
        last[:] = [result]
        return seconds

    return Row(check=lambda: check(last[0]), time_batch=time_batch)


def random(seed, *shape):
    return jax.random.uniform(jax.random.key(seed), shape, minval=-1, maxval=1)


def rows_of(x):
    return np.asarray(x[np.array(sizes.sampled_rows(x.shape[0]))], np.float64)


def eager_op():
    a, b = random_floats(1024), random_floats(1024)
    return queued(lambda x, y: x + y, (jnp.asarray(a), jnp.asarray(b)),
                  lambda z: close(z, a + b, 0))


# ---------------------------------------------------------------------------------------- replays


def replay(branches):
    w = np.linalg.qr(np.random.default_rng(7).standard_normal((sizes.SIDE, sizes.SIDE)))[0]
    w = w.astype(np.float32)
    lines = [random_floats(sizes.SIDE, sizes.SIDE) for _ in range(branches)]
    power = np.linalg.matrix_power(w.astype(np.float64), sizes.CHAINED)

    def f(lines, w):
        out = []
        for x in lines:
            for _ in range(sizes.CHAINED):
                x = x @ w
            out.append(x)
        return out

    def check(results):
        faults = [close(got, x @ power, 1e-3) for got, x in zip(results, lines)]
        return next((fault for fault in faults if fault), "")

    return queued(jax.jit(f), ([jnp.asarray(x) for x in lines], jnp.asarray(w)), check)


# -------------------------------------------------------------------------------- bound by memory


def chain(x, np_=jnp):
    return np_.sqrt(np_.maximum(np_.square(x * 1.5 + 0.25) - x, 0.125))


def softmax(x, np_=jnp):
    if np_ is jnp:
        return jax.nn.softmax(x)
    e = np.exp(x)
    return e / e.sum(1, keepdims=True)


def rms_norm(x, scale, np_=jnp):
    return x / np_.sqrt(np_.mean(np_.square(x), 1, keepdims=True) + 1e-6) * scale


def matrix_function(f, n):
    x = random(3, sizes.scaled(n), sizes.COLUMNS)
    more = [random(4, sizes.COLUMNS)] if f is rms_norm else []
    want = f(rows_of(x), *(np.asarray(a, np.float64) for a in more), np_=np)
    return queued(jax.jit(f), (x, *more), lambda y: close(rows_of(y), want, 2e-5))


def distances():
    """Squared distances of all pairs of points, written as differences."""
    a, b = (random(seed, sizes.scaled(sizes.POINTS), sizes.COORDINATES) for seed in (1, 2))
    f = lambda a, b, np_=jnp: np_.square(a[:, None] - b[None]).sum(-1)  # noqa: E731
    want = f(rows_of(a), np.asarray(b, np.float64), np)
    return queued(jax.jit(f), (a, b), lambda y: close(rows_of(y), want, 1e-3))


# --------------------------------------------------------------------------------- random numbers


def threefry_bits(key, indices):
    """The u32 of random bits at these flat indices, as bench/support/threefry.h has them."""
    keys = [key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)]
    x, y = np.full_like(indices, keys[0]), indices + keys[1]
    for group in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y
            y = (y << np.uint32(turn) | y >> np.uint32(32 - turn)) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x ^ y


def random_bits(n):
    words = np.array([0, 42], np.uint32)
    f = jax.jit(lambda words: jax.random.bits(jax.random.wrap_key_data(words), (n,), jnp.uint32))
    indices = np.r_[:min(n, 4096), n - min(n, 4096):n].astype(np.uint32)
    want = threefry_bits(words, indices)

    def check(drawn):
        wrong = np.flatnonzero(np.asarray(drawn[indices]) != want)
        return f"number {indices[wrong[0]]} is another" if wrong.size else ""

    return queued(f, (jnp.asarray(words),), check)


def random_bits_of_keys(n):
    words = np.random.default_rng(11).integers(0, 1 << 32, (n, 2), np.uint32)
    draw = lambda words: jax.random.bits(jax.random.wrap_key_data(words), (sizes.OF_KEY,), jnp.uint32)  # noqa: E731
    keys = np.array(sizes.sampled_rows(n))
    want = np.stack([threefry_bits(words[k], np.arange(sizes.OF_KEY, dtype=np.uint32)) for k in keys])
    return queued(jax.jit(jax.vmap(draw)), (jnp.asarray(words),),
                  lambda drawn: "" if np.array_equal(drawn[keys], want) else "other bits")


def random_normals(n):
    """Normals are checked by their inverse: erf(normal / sqrt(2)) is the uniform that gave them."""
    words = np.array([0, 42], np.uint32)
    f = jax.jit(lambda words: jax.random.normal(jax.random.wrap_key_data(words), (n,)))
    indices = np.arange(n - min(n, 4096), n, dtype=np.uint32)
    from_one = (threefry_bits(words, indices) >> np.uint32(9) | np.uint32(0x3F800000)).view(np.float32)
    want = np.maximum((from_one - 1) * 2.0 - 1, np.nextafter(-1.0, 0.0))

    def check(drawn):
        normals = np.asarray(drawn[indices], np.float64)
        return close([math.erf(x / math.sqrt(2)) for x in normals], want, 1e-6)

    return queued(f, (jnp.asarray(words),), check)


# ------------------------------------------------------------------------------ attention, a layer


def attention(batch, heads, length, d, dtype=jnp.bfloat16):
    length = sizes.scaled(length)
    q, k, v = (random(s, batch, length, heads, d).astype(dtype) for s in (5, 6, 7))
    how = "cudnn" if jax.default_backend() == "gpu" else "xla"
    f = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, implementation=how))
    q0, k0, v0 = (np.asarray(a[0, :, 0], np.float64) for a in (q, k, v))
    scores = np.exp(q0 @ k0.T / math.sqrt(d))
    want = scores / scores.sum(1, keepdims=True) @ v0
    # Attention weights average over many random values, so that results are small.
    tolerance = 0.05 / math.sqrt(length)
    return queued(f, (q, k, v),
                  lambda y: close(np.asarray(y[0, :, 0], np.float64), want, tolerance))


def attention_grad(causal):
    """The cotangents of q, k and v, the forward pass with them."""
    batch, heads, length, d = sizes.ATTENTION
    length = sizes.scaled(length)
    args = [random(s, batch, length, heads, d).astype(jnp.bfloat16) for s in (5, 6, 7, 8)]
    how = "cudnn" if jax.default_backend() == "gpu" else "xla"

    def gradient(q, k, v, ct, how=how):
        attend = lambda *x: jax.nn.dot_product_attention(*x, is_causal=causal, implementation=how)
        return jax.vjp(attend, q, k, v)[1](ct)

    want = gradient(*(a[:1, :, :1].astype(jnp.float32) for a in args), how="xla")

    def check(got):
        faults = [close(np.asarray(g[:1, :, :1], np.float64), np.asarray(w, np.float64),
                        0.03 * float(abs(w).max())) for g, w in zip(got, want)]
        return next((fault for fault in faults if fault), "")

    return queued(jax.jit(gradient), args, check)


def transformer():
    mapped, args, check = jax_peer.layer()
    return queued(jax.jit(mapped), args, check)


def transformer_grad():
    gradient, args, check = jax_peer.layer_gradient()
    return queued(jax.jit(gradient), args, check)


def factories():
    rows = {"eager_op": eager_op, "attention": lambda: attention(*sizes.ATTENTION),
            "distances_2000": distances,
            "attention_grad": lambda: attention_grad(False),
            "attention_causal_grad": lambda: attention_grad(True), "transformer": transformer,
            "transformer_grad": transformer_grad, "replay_line": lambda: replay(1),
            "replay_branches": lambda: replay(sizes.BRANCHES),
            "random_bits_16m": lambda: random_bits(sizes.scaled(sizes.RANDOMS)),
            "random_normal_16m": lambda: random_normals(sizes.scaled(sizes.RANDOMS)),
            "random_bits_of_keys": lambda: random_bits_of_keys(sizes.scaled(sizes.KEYS))}
    for dtype, batch, length in sizes.ATTENTIONS:
        rows[sizes.attention_name(dtype, length)] = lambda d=dtype, b=batch, n=length: attention(
            b, 16, n, 128, {"bf16": jnp.bfloat16, "f16": jnp.float16}[d])
    for name, f in (("fused_chain", chain), ("softmax", softmax), ("rms_norm", rms_norm)):
        for n in sizes.MATRIX_ROWS:
            rows[f"{name}_{n}"] = lambda f=f, n=n: matrix_function(f, n)
    return rows


if __name__ == "__main__":
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__,
                "device": jax.devices()[0].device_kind}
    sys.exit(serve("jax", versions, factories()))
