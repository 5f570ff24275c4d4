"""The rows in JAX on 8 host devices, or as many as BENCH_DEVICES says. Every call is waited for: its
CPU devices starve each other, and abort, once some fifty calls are queued on few cores."""

import os
import sys
import time

DEVICES = int(os.environ.get("BENCH_DEVICES", "8"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={DEVICES}"
)

import jax  # noqa: E402
import jax.extend.core  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jaxlib  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P  # noqa: E402

from protocol import Row, serve  # noqa: E402

SIZES = {"1kb": 1 << 10, "1mb": 1 << 20, "4mb": 4 << 20, "16mb": 16 << 20}
M, K, N = 4096, 2048, 1024  # the collective matmul

mesh = jax.make_mesh((DEVICES,), ("i",), axis_types=(AxisType.Auto,))
rng = np.random.default_rng(7)


def random_floats(*shape):
    return rng.random(shape, dtype=np.float32) * 2 - 1


def put(x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def close(got, want, tolerance):
    """'' or what differs most. Big results are compared on a strided sample."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    got, want = got.reshape(-1), want.reshape(-1)
    step = max(1, got.size // 65536)
    error = float(np.max(np.abs(got[::step].astype(np.float64) - want[::step])))
    return "" if error <= tolerance else f"off by {error}, allowed {tolerance}"


def waited(f, args, check_result):
    """A row whose call is f(*args), waited for; the last result is checked."""
    last = []

    def call():
        last[:] = [jax.block_until_ready(f(*args))]

    return Row(call, lambda: check_result(last[0]))


# ------------------------------------------------------------------------------------- one eager op


def eager_op(waited_each):
    """An eager op on one device. Calls may be queued: waiting for each costs two thread hand-offs."""
    a, b = random_floats(1024), random_floats(1024)
    x, y = jnp.asarray(a), jnp.asarray(b)
    last = []

    def time_batch(n):
        start = time.perf_counter()
        for _ in range(n):
            z = x + y
            if waited_each:
                z.block_until_ready()
        z.block_until_ready()
        seconds = time.perf_counter() - start
        last[:] = [z]
        return seconds

    return Row(check=lambda: close(last[0], a + b, 0), time_batch=time_batch)


# ----------------------------------------------------------------------------------- the eager body


def body(x):
    y = jnp.sin(x)
    y = y * x
    y = jnp.sin(y)
    y = y + x
    y = jnp.sin(y)
    y = y * x
    y = jnp.sin(y)
    y = y + x
    y = jnp.sin(y)
    y = y - x
    return jax.lax.psum(y, "i")


def body_reference(x):
    x = x.astype(np.float64)
    y = np.sin(np.sin(np.sin(x) * x) + x)
    y = np.sin(np.sin(y * x) + x) - x
    return y.reshape(DEVICES, -1).sum(0)


def shard_map_body(jitted):
    a = random_floats(DEVICES * 1024)
    f = jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P())
    row = waited(
        jax.jit(f) if jitted else f,
        (put(a, "i"),),
        lambda r: close(r, body_reference(a), 1e-4),
    )
    if not jitted:
        row.max_calls = 1  # it compiles every primitive anew: most of a second a call
    return row


def first_call_of_body():
    """Each call is the first one of a jit: a function that was never seen is traced, compiled, run."""
    a = random_floats(DEVICES * 1024)
    x = put(a, "i")

    def first_call(x):
        return jax.jit(
            jax.shard_map(lambda x: body(x), mesh=mesh, in_specs=P("i"), out_specs=P()))(x)

    return waited(first_call, (x,), lambda r: close(r, body_reference(a), 1e-4))


# --------------------------------------------------------------------------- tracing, fused programs


def trace_1000():
    """Traces operations of lax: those of jax.numpy cost more to trace."""
    pairs, last = 500, []

    def call():
        def f(x):
            y = x
            for _ in range(pairs):
                y = jax.lax.mul(jax.lax.sin(y), x)
            return y

        last[:] = [jax.make_jaxpr(f)(jax.ShapeDtypeStruct((1024,), np.float32))]

    def check():
        names = [e.primitive.name for e in last[0].eqns]
        if names != ["sin", "mul"] * pairs:
            return "other equations than 500 sin and 500 mul"
        x = random_floats(1024)
        want = x.astype(np.float64)
        for _ in range(pairs):
            want = np.sin(want) * x
        return close(jax.core.eval_jaxpr(last[0].jaxpr, last[0].consts, x)[0], want, 1e-4)

    return Row(call, check)


def on_one_device(f, args, want, tolerance):
    one = jax.devices()[0]
    args = [jax.device_put(a, one) for a in args]
    return waited(jax.jit(f), args, lambda r: close(r, want, tolerance))


def fused_chain():
    x = random_floats(1 << 24)
    v = x.astype(np.float64)
    want = np.sqrt(np.maximum((v * 1.5 + 0.25) ** 2 - v, 0.125))
    return on_one_device(
        lambda x: jnp.sqrt(jnp.maximum(jnp.square(x * 1.5 + 0.25) - x, 0.125)), [x], want, 1e-5)


def softmax():
    x = random_floats(4096, 4096)
    e = np.exp(x.astype(np.float64))
    return on_one_device(jax.nn.softmax, [x], e / e.sum(1, keepdims=True), 2e-5)


def layer_norm():
    x, scale, bias = random_floats(4096, 4096), random_floats(4096), random_floats(4096)

    def f(x, scale, bias, np_=jnp):
        centred = x - np_.mean(x, 1, keepdims=True)
        variance = np_.mean(np_.square(centred), 1, keepdims=True)
        return centred / np_.sqrt(variance + 1e-5) * scale + bias

    want = f(x.astype(np.float64), scale, bias, np)
    return on_one_device(f, [x, scale, bias], want, 2e-5)


# -------------------------------------------------------------------------------------- collectives


def collective(f, a, out_spec, want, tolerance=0.0):
    g = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=out_spec))
    return waited(g, (put(a, "i"),), lambda r: close(r, want, tolerance))


def psum(size):
    a = random_floats(DEVICES, size // 4)
    want = a.astype(np.float64).sum(0, keepdims=True)
    return collective(lambda x: jax.lax.psum(x, "i"), a, P(), want, 1e-5 if DEVICES == 8 else 1e-4)


def all_gather(size):
    a = random_floats(DEVICES * (size // 4))
    want = np.broadcast_to(a, (DEVICES, a.size)).reshape(-1)
    return collective(lambda x: jax.lax.all_gather(x, "i", tiled=True), a, P("i"), want)


def psum_scatter(size):
    n = size // 4
    a = random_floats(DEVICES * n)
    want = a.astype(np.float64).reshape(DEVICES, n).sum(0)
    return collective(
        lambda x: jax.lax.psum_scatter(x, "i", scatter_dimension=0, tiled=True),
        a, P("i"), want, 1e-5,
    )


def all_to_all(size):
    n = size // 4
    a = random_floats(DEVICES * n)
    want = a.reshape(DEVICES, DEVICES, n // DEVICES).swapaxes(0, 1).reshape(-1)
    return collective(lambda x: jax.lax.all_to_all(x, "i", 0, 0, tiled=True), a, P("i"), want)


def ppermute(size):
    n = size // 4
    a = random_floats(DEVICES * n)
    ring = [(k, (k + 1) % DEVICES) for k in range(DEVICES)]
    want = np.roll(a.reshape(DEVICES, n), 1, axis=0).reshape(-1)
    return collective(lambda x: jax.lax.ppermute(x, "i", ring), a, P("i"), want)


def psum_a_device():
    """µs a call and device."""
    row = psum(1024)
    return Row(row.call, row.check, parts=DEVICES)


# --------------------------------------------------------------------------------------------- gemm


def product_sample(a, b):
    """16 rows of the product in double, spread over the matrix: (rows, values)."""
    rows = np.linspace(0, a.shape[0] - 1, 16).astype(int)
    return rows, a[rows].astype(np.float64) @ b.astype(np.float64)


def check_product(a, b, tolerance):
    rows, want = product_sample(a, b)
    return lambda r: close(np.asarray(r)[rows].astype(np.float64), want, tolerance)


def gemm(n, dtype):
    a = jnp.asarray(random_floats(n, n)).astype(dtype)
    b = jnp.asarray(random_floats(n, n)).astype(dtype)
    one = jax.devices()[0]
    a, b = jax.device_put(a, one), jax.device_put(b, one)
    tolerance = 1e-2 if dtype == jnp.float32 else 1.0
    return waited(jax.jit(jnp.matmul), (a, b),
                  check_product(np.asarray(a), np.asarray(b), tolerance))


def gather_overlapped(lhs, rhs):
    """All-gather collective matmul: each shard is multiplied while the next one travels."""
    index = jax.lax.axis_index("i")
    rows = lhs.shape[0]
    ring = [(k, (k - 1) % DEVICES) for k in range(DEVICES)]
    out = jax.lax.pcast(jnp.zeros((rows * DEVICES, rhs.shape[1]), lhs.dtype), "i", to="varying")
    for step in range(DEVICES):
        update = lhs @ rhs
        if step + 1 < DEVICES:
            lhs = jax.lax.ppermute(lhs, "i", ring)
        out = jax.lax.dynamic_update_slice(out, update, (((index + step) % DEVICES) * rows, 0))
    return out


def gather_serial(lhs, rhs):
    return jax.lax.all_gather(lhs, "i", axis=0, tiled=True) @ rhs


def scatter_overlapped(lhs, rhs):
    """Matmul reduce-scatter: the sum for a device travels the ring and grows at every stop."""
    index = jax.lax.axis_index("i")
    rows = lhs.shape[0] // DEVICES
    ring = [(k, (k + 1) % DEVICES) for k in range(DEVICES)]
    total = None
    for step in range(DEVICES):
        block = (index - step - 1) % DEVICES
        part = jax.lax.dynamic_slice(lhs, (block * rows, 0), (rows, lhs.shape[1])) @ rhs
        total = part if total is None else jax.lax.ppermute(total, "i", ring) + part
    return total


def scatter_serial(lhs, rhs):
    return jax.lax.psum_scatter(lhs @ rhs, "i", scatter_dimension=0, tiled=True)


def collective_matmul(form):
    a, b = random_floats(M, K), random_floats(K, N)
    check = check_product(a, b, 1e-2)
    sm = lambda f, ins, out: jax.jit(  # noqa: E731
        jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=out, check_vma=False))
    if form == "seed":  # every device multiplies all of A by all of B
        f = sm(gather_overlapped, (P("i", None), P()), P())
        return waited(f, (put(a, "i", None), put(b)), check)
    kind, how = form.split("_")
    if kind == "gather":
        specs, out = (("i", None), (None, "i")), (None, "i")
        overlapped, serial = gather_overlapped, gather_serial
    else:
        specs, out = ((None, "i"), ("i", None)), ("i", None)
        overlapped, serial = scatter_overlapped, scatter_serial
    args = (put(a, *specs[0]), put(b, *specs[1]))
    if how == "partitioned":
        f = jax.jit(jnp.matmul, out_shardings=NamedSharding(mesh, P(*out)))
    else:
        body_ = overlapped if how == "overlapped" else serial
        f = sm(body_, (P(*specs[0]), P(*specs[1])), P(*out))
    return waited(f, args, check)


# ------------------------------------------------------------------------------- transformer layer

LAYER = dict(B=8, S=128, E=512, H=8, D=64, F=2048)


def layer_body(x, w):
    """The layer of transformer_bench on one device: 2D weight-gathered."""
    gathered = lambda part, axis: jax.lax.all_gather(  # noqa: E731
        part, "i", axis=axis, tiled=True)
    h = jax.lax.all_gather(x, "j", axis=2, tiled=True)
    h = h * jax.lax.rsqrt(jnp.mean(jnp.square(h), -1, keepdims=True) + 1e-6) * w["scale"]
    q, k, v = (jnp.einsum("bse,ehd->bshd", h, gathered(w[n], 0)) for n in ("wq", "wk", "wv"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(LAYER["D"])
    position = jnp.arange(LAYER["S"])
    scores = jnp.where(position[:, None] >= position, scores, -1e30)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    attended = jnp.einsum("bshd,hde->bse", mixed, gathered(w["wo"], 2))
    hidden = jax.nn.silu(h @ gathered(w["w_in"], 0))
    out = attended + hidden @ gathered(w["w_out"], 1)
    return x + jax.lax.psum_scatter(out, "j", scatter_dimension=2, tiled=True)


def layer_reference(x, w):
    """In double, of one sequence."""
    x, w = x.astype(np.float64), {n: v.astype(np.float64) for n, v in w.items()}
    h = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6) * w["scale"]
    q, k, v = (np.einsum("se,ehd->shd", h, w[n]) for n in ("wq", "wk", "wv"))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(LAYER["D"])
    scores = np.where(np.tri(LAYER["S"], dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v)
    hidden = h @ w["w_in"]
    hidden = hidden / (1 + np.exp(-hidden))
    return x + np.einsum("shd,hde->se", mixed, w["wo"]) + hidden @ w["w_out"]


def layer():
    """(the mapped function, its arguments, the check of a result)"""
    B, S, E, H, D, F = LAYER.values()
    shapes = {"scale": (E,), "wq": (E, H, D), "wk": (E, H, D), "wv": (E, H, D), "wo": (H, D, E),
              "w_in": (E, F), "w_out": (F, E)}
    specs = {"scale": P(), "wq": P("i", "j"), "wk": P("i", "j"), "wv": P("i", "j"),
             "wo": P("j", None, "i"), "w_in": P("i", "j"), "w_out": P("j", "i")}
    size = {"scale": 1, "w_out": 0.04}
    x = random_floats(B, S, E)
    w = {n: random_floats(*shape) * np.float32(size.get(n, 0.08)) for n, shape in shapes.items()}
    shape = (4, 2) if DEVICES > 1 else (1, 1)
    grid = jax.make_mesh(shape, ("i", "j"), axis_types=(AxisType.Auto,) * 2)
    of_x = P("i", None, "j")
    mapped = jax.shard_map(layer_body, mesh=grid, in_specs=(of_x, specs), out_specs=of_x)
    args = (jax.device_put(x, NamedSharding(grid, of_x)),
            {n: jax.device_put(v, NamedSharding(grid, specs[n])) for n, v in w.items()})
    checked, want = 5, layer_reference(x[5], w)
    return mapped, args, lambda r: close(np.asarray(r)[checked], want, 1e-4)


def first_two_calls(f, args, check):
    """A new function's first two calls, each waited for."""
    last = []

    def time_batch(n):
        seconds = 0.0
        for _ in range(n):
            last.clear()
            start = time.perf_counter()
            new = jax.jit(lambda *operands: f(*operands))
            for _ in range(2):
                last[:] = [jax.block_until_ready(new(*args))]
            seconds += time.perf_counter() - start
        return seconds

    return Row(check=lambda: check(last[0]), time_batch=time_batch)


def transformer():
    mapped, args, check = layer()
    return waited(jax.jit(mapped), args, check)


def transformer_first_call():
    """Tracing and compiling; the run that verifies the program is not timed."""
    mapped, args, check = layer()
    last = []

    def time_batch(n):
        seconds = 0.0
        for _ in range(n):
            start = time.perf_counter()
            last[:] = [jax.jit(lambda x, w: mapped(x, w)).lower(*args).compile()]
            seconds += time.perf_counter() - start
        return seconds

    return Row(check=lambda: check(jax.block_until_ready(last[0](*args))), time_batch=time_batch)


def transformer_first_two_calls():
    return first_two_calls(*layer())


def compiled_memory(f, args, check):
    """Bytes that the compiler says f takes on all devices, and '' or what was wrong."""
    compiled = jax.jit(f).lower(*args).compile()
    use = compiled.memory_analysis()
    total = (use.argument_size_in_bytes + use.output_size_in_bytes + use.temp_size_in_bytes
             - use.alias_size_in_bytes)
    return DEVICES * total, check(jax.block_until_ready(compiled(*args)))


def transformer_memory():
    return compiled_memory(*layer())


# ----------------------------------------------------------------------------------- derivatives


def layer_gradient():
    """(the gradient function of weights and input, its arguments, the check of a result)

    The loss is the layer's output on the checked sequence, weighed by random numbers; what is
    checked is its slope, in double, along a random direction over all weights, and along one over
    the input.
    """
    mapped, (x, w), _ = layer()
    B, S, E = (LAYER[n] for n in "BSE")
    checked = 5
    c = np.zeros((B, S, E), np.float32)
    c[checked] = random_floats(S, E)
    c_on_devices = jax.device_put(c, x.sharding)
    gradient = jax.grad(lambda w, x: jnp.sum(mapped(x, w) * c_on_devices), argnums=(0, 1))

    host = {n: np.asarray(v, np.float64) for n, v in w.items()}
    one = np.asarray(x)[checked]
    step = {n: np.random.default_rng(k).uniform(-1, 1, v.shape) * np.std(v) / 64
            for k, (n, v) in enumerate(host.items())}
    step_of_x = np.random.default_rng(len(step)).uniform(-1, 1, x.shape) / 64
    value = lambda of_w, of_x: np.sum(c[checked] * layer_reference(  # noqa: E731
        one + of_x * step_of_x[checked], {n: host[n] + of_w * step[n] for n in host}))
    slope = (value(1, 0) - value(-1, 0)) / 2
    slope_of_x = (value(0, 1) - value(0, -1)) / 2

    def check(result):
        got = sum(np.sum(np.asarray(result[0][n], np.float64) * step[n]) for n in host)
        got_of_x = np.sum(np.asarray(result[1], np.float64) * step_of_x)
        for of, slope_got, wanted in (("weights", got, slope), ("x", got_of_x, slope_of_x)):
            if not abs(slope_got - wanted) <= 2e-3 * abs(wanted):
                return f"slope along {of} {slope_got}, should be {wanted}"
        return ""

    return gradient, (w, x), check


def transformer_grad():
    gradient, args, check = layer_gradient()
    return waited(jax.jit(gradient), args, check)


def transformer_grad_first_call():
    gradient, args, check = layer_gradient()
    last = []

    def time_batch(n):
        seconds = 0.0
        for _ in range(n):
            start = time.perf_counter()
            last[:] = [jax.jit(lambda w, x: gradient(w, x)).lower(*args).compile()]
            seconds += time.perf_counter() - start
        return seconds

    return Row(check=lambda: check(jax.block_until_ready(last[0](*args))), time_batch=time_batch)


def transformer_grad_first_two_calls():
    return first_two_calls(*layer_gradient())


def transformer_grad_memory():
    gradient, args, check = layer_gradient()
    return compiled_memory(gradient, args, check)


def mlp_grad():
    """grad_bench's perceptron, data parallel: value and gradient."""
    sizes, batch = (256, 512, 512, 64), 1024
    net = [(random_floats(m, n) * np.float32(0.1), random_floats(n))
           for m, n in zip(sizes, sizes[1:])]
    x, target = random_floats(batch, sizes[0]), random_floats(batch, sizes[-1])

    def predict(net, x):
        for w, b in net[:-1]:
            x = jnp.tanh(x @ w + b)
        return x @ net[-1][0] + net[-1][1]

    def loss(net, x, target):
        return jax.lax.pmean(jnp.mean(jnp.square(predict(net, x) - target)), "i")

    mapped = jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("i"), P("i")), out_specs=P())
    args = (jax.device_put(net, NamedSharding(mesh, P())), put(x, "i"), put(target, "i"))

    def first_gradient():
        a = [x.astype(np.float64)]
        for k, (w, b) in enumerate(net):
            y = a[-1] @ w.astype(np.float64) + b
            a.append(np.tanh(y) if k < 2 else y)
        bar = 2 * (a[-1] - target) / a[-1].size
        for k in (2, 1):
            bar = bar @ net[k][0].astype(np.float64).T * (1 - a[k] ** 2)
        return a[0].T @ bar

    want = first_gradient()
    return waited(jax.jit(jax.value_and_grad(mapped)), args,
                  lambda r: close(r[1][0][0], want, 1e-6))


def grad_1000():
    last = []

    def call():
        def f(x):
            y = x
            for _ in range(500):
                y = jnp.sin(y) * x
            return jnp.sum(y)

        last[:] = [jax.make_jaxpr(jax.grad(f))(jax.ShapeDtypeStruct((1024,), np.float32))]

    def check():
        x = random_floats(1024)
        y, slope = x.astype(np.float64), np.ones(1024)
        for _ in range(500):
            y, slope = np.sin(y) * x, np.cos(y) * slope * x + np.sin(y)
        return close(jax.extend.core.jaxpr_as_fun(last[0])(x)[0], slope, 1e-3)

    return Row(call, check)


# --------------------------------------------------------------------------- memory, queued calls


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def replicated_memory():
    """Prints how much a 64 MiB-a-device replicated argument grows the process (bytes)."""
    a = random_floats(16 << 20)
    f = jax.jit(jax.shard_map(lambda x: x[:1] + 0, mesh=mesh, in_specs=P(), out_specs=P()))
    small = put(random_floats(1024))
    jax.block_until_ready(f(small))
    before = resident_bytes()
    x = put(a)
    jax.block_until_ready(x)
    after = resident_bytes()
    fault = close(x.addressable_shards[-1].data, a, 0)
    return after - before, fault


def queued_calls(count):
    """Queues `count` calls of jit(psum) and waits once; the process may abort."""
    f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"),
                              out_specs=P()))
    x = put(random_floats(DEVICES * 1024), "i")
    jax.block_until_ready(f(x))
    for k in range(count):
        y = f(x)
        if (k + 1) % 10 == 0:
            print(f"queued {k + 1}", flush=True)
    jax.block_until_ready(y)
    print("done", flush=True)


def first_result():
    """Computes one small result, once per process; the caller times the whole process."""
    a = random_floats(DEVICES, 256)
    f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"),
                              out_specs=P()))
    return close(f(put(a, "i")), a.astype(np.float64).sum(0, keepdims=True), 1e-5)


def factories():
    rows = {
        "eager_op:queued": lambda: eager_op(False),
        "eager_op:waited": lambda: eager_op(True),
        "eager_body:eager": lambda: shard_map_body(False),
        "eager_body:jit": lambda: shard_map_body(True),
        "first_call": first_call_of_body,
        "trace_1000": trace_1000,
        "fused_chain": fused_chain,
        "softmax": softmax,
        "layer_norm": layer_norm,
        "jit_psum_a_device": psum_a_device,
        "transformer": transformer,
        "transformer_first_call": transformer_first_call,
        "transformer_first_two_calls": transformer_first_two_calls,
        "transformer_grad": transformer_grad,
        "transformer_grad_first_call": transformer_grad_first_call,
        "transformer_grad_first_two_calls": transformer_grad_first_two_calls,
        "mlp_grad": mlp_grad,
        "grad_1000": grad_1000,
        "cm_seed": lambda: collective_matmul("seed"),
    }
    for kind in ("gather", "scatter"):
        for how in ("overlapped", "serial", "partitioned"):
            rows[f"cm_{kind}:{how}"] = lambda form=f"{kind}_{how}": collective_matmul(form)
    for make in (psum, all_gather, psum_scatter, all_to_all, ppermute):
        for size in ("1kb", "1mb", "4mb" if make is all_gather else "16mb"):
            rows[f"{make.__name__}_{size}"] = lambda m=make, s=SIZES[size]: m(s)
    for n in (1024, 2048):
        rows[f"sgemm_{n}"] = lambda n=n: gemm(n, jnp.float32)
        rows[f"bf16_matmul_{n}"] = lambda n=n: gemm(n, jnp.bfloat16)
    return rows


MEASURES = {
    "--replicated": replicated_memory,
    "--transformer-memory": transformer_memory,
    "--transformer-grad-memory": transformer_grad_memory,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--queued"]:
        queued_calls(int(sys.argv[2]))
    elif sys.argv[1:2] == ["--first"]:
        fault = first_result()
        if fault:
            sys.exit(f"#wrong first result: {fault}")
    elif sys.argv[1:2] and sys.argv[1] in MEASURES:
        measure = MEASURES[sys.argv[1]]
        taken, fault = measure()
        if fault:
            sys.exit(f"#wrong {sys.argv[1]}: {fault}")
        print(taken)
    else:
        sys.exit(serve("jax", {"jax": jax.__version__, "jaxlib": jaxlib.__version__}, factories()))
