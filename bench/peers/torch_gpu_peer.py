"""The rows in torch on one GPU. Calls are queued, and waited for once a batch."""

import math
import os
import sys
import time

import torch

import gpu_sizes as sizes
from protocol import Row, serve
from torch_peer import chain, difference, softmax

DEVICE = os.environ.get("BENCH_TORCH_DEVICE", "cuda")  # `cpu`: to look, not to measure
torch.set_grad_enabled(False)
torch.set_float32_matmul_precision("highest")  # f32, as the others' products are, not TF32
torch.manual_seed(7)


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def random(*shape):
    return torch.rand(shape, device=DEVICE) * 2 - 1


def queued(call, check):
    """A result is dropped before the next call, so that its memory is reused, as on our side."""
    last = []

    def time_batch(n):
        last.clear()
        result = None
        start = time.perf_counter()
        for _ in range(n):
            del result
            result = call()
        synchronize()
        seconds = time.perf_counter() - start
        last[:] = [result]
        return seconds

    return Row(check=lambda: check(last[0]), time_batch=time_batch)


def host_time(call, check):
    """The time until a call returns. The wait for each result is outside of that time."""
    last = []

    def time_batch(n):
        last.clear()
        seconds, result = 0.0, None
        for _ in range(n):
            del result
            start = time.perf_counter()
            result = call()
            seconds += time.perf_counter() - start
            synchronize()
        last[:] = [result]
        return seconds

    return Row(check=lambda: check(last[0]), time_batch=time_batch, max_calls=64)


def rows_of(x):
    return x[sizes.sampled_rows(x.shape[0])]


def eager_op(timed):
    x, y = random(1024), random(1024)
    want = x.double() + y.double()
    return timed(lambda: x + y, lambda z: difference(z, want, 1e-6))


# ---------------------------------------------------------------------------------------- replays


def rotation(n):
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, device=DEVICE))[0].float()


def chained(x, w, n):
    for _ in range(n):
        x = x @ w
    return x


def replay(lines, w, n, tolerance):
    """A captured graph of lines of n products, each on a stream of its own."""
    want = [chained(x.double(), w.double(), n) for x in lines]
    streams = [torch.cuda.Stream() for _ in lines]
    for stream in streams:  # the libraries' handles, before the capture
        with torch.cuda.stream(stream):
            chained(lines[0], w, n)
    synchronize()
    graph, results = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        capturing = torch.cuda.current_stream()
        for stream, x in zip(streams, lines):
            stream.wait_stream(capturing)
            with torch.cuda.stream(stream):
                results.append(chained(x, w, n))
        for stream in streams:
            capturing.wait_stream(stream)

    def check(_, kept=(lines, w)):  # the graph reads them by address
        faults = [difference(got, right, tolerance) for got, right in zip(results, want)]
        return next((fault for fault in faults if fault), "")

    return queued(graph.replay, check)


def replayed_lines(branches):
    lines = [random(sizes.SIDE, sizes.SIDE) for _ in range(branches)]
    return replay(lines, rotation(sizes.SIDE), sizes.CHAINED, 1e-3)


DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
          "f64": torch.float64}
CHAIN_TOLERANCES = {"f32": 1e-3, "bf16": 0.2, "f16": 0.03, "f64": 1e-5}


def small_products(dtype, rows, side):
    """A graph of a chain of small products: the time of a product."""
    w, x = (a.bfloat16().to(DTYPES[dtype]) for a in (rotation(side), random(rows, side)))
    row = replay([x], w, sizes.SMALL_CHAINED, CHAIN_TOLERANCES[dtype])
    row.parts = sizes.SMALL_CHAINED
    return row


# --------------------------------------------------------------------------------------- products


def product(m, k, n):
    m, k, n = (sizes.scaled(extent) for extent in (m, k, n))
    a, b = random(m, k).bfloat16(), random(k, n).bfloat16()
    want = rows_of(a).double() @ b.double()
    tolerance = math.sqrt(k) / 64
    return queued(lambda: a @ b, lambda c: difference(rows_of(c), want, tolerance))


# -------------------------------------------------------------------------------- bound by memory


def rms_norm(x, scale):
    return torch.nn.functional.rms_norm(x, (x.shape[1],), scale, 1e-6)


def matrix_function(f, n, compiled, scale=False):
    x = random(sizes.scaled(n), sizes.COLUMNS)
    more = [random(sizes.COLUMNS)] if scale else []
    want = f(rows_of(x).double(), *(a.double() for a in more))
    g = torch.compile(f, dynamic=False) if compiled else f
    return queued(lambda: g(x, *more), lambda y: difference(rows_of(y), want, 2e-5))


def distances(compiled):
    """Squared distances of all pairs of points, written as differences."""
    a, b = (random(sizes.scaled(sizes.POINTS), sizes.COORDINATES) for _ in range(2))

    def f(a, b):
        return torch.square(a[:, None] - b[None]).sum(-1)

    want = f(rows_of(a).double(), b.double())
    g = torch.compile(f, dynamic=False) if compiled else f
    return queued(lambda: g(a, b), lambda y: difference(rows_of(y), want, 1e-3))


# ------------------------------------------------------------------------------ attention, a layer


def attention(batch, heads, length, depth, dtype=torch.bfloat16):
    shape = batch, heads, sizes.scaled(length), depth
    q, k, v = (random(*shape).to(dtype) for _ in range(3))
    f = torch.nn.functional.scaled_dot_product_attention
    want = f(q[:1, :1].double(), k[:1, :1].double(), v[:1, :1].double())
    # Attention weights average over many random values, so that results are small.
    tolerance = 0.05 / math.sqrt(shape[2])
    return queued(lambda: f(q, k, v), lambda y: difference(y[:1, :1], want, tolerance))


def attention_grad(causal):
    """The cotangents of q, k and v, the forward pass with them."""
    shape = [*sizes.ATTENTION[:2], sizes.scaled(sizes.ATTENTION[2]), sizes.ATTENTION[3]]
    q, k, v, ct = (random(*shape).bfloat16() for _ in range(4))

    def gradient(q, k, v, ct):
        with torch.enable_grad():
            args = [a.detach().requires_grad_() for a in (q, k, v)]
            y = torch.nn.functional.scaled_dot_product_attention(*args, is_causal=causal)
            return torch.autograd.grad(y, args, ct)

    want = gradient(*(a[:1, :1].double() for a in (q, k, v, ct)))

    def check(got):
        faults = [difference(g[:1, :1], w, 0.03 * float(w.abs().max())) for g, w in zip(got, want)]
        return next((fault for fault in faults if fault), "")

    return queued(lambda: gradient(q, k, v, ct), check)


B, S, E, H, D, F = 8, 128, 512, 8, 64, 2048  # of bench/support/transformer_layer.h


def layer(x, scale, wq, wk, wv, wo, w_in, w_out):
    h = x * torch.rsqrt(torch.mean(torch.square(x), -1, keepdim=True) + 1e-6) * scale
    q, k, v = (torch.einsum("bse,ehd->bshd", h, w) for w in (wq, wk, wv))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (1 / math.sqrt(D))
    position = torch.arange(S, device=x.device)
    scores = torch.where(position[:, None] >= position, scores, -1e30)
    mixed = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1), v)
    attended = torch.einsum("bshd,hde->bse", mixed, wo)
    return x + attended + torch.nn.functional.silu(h @ w_in) @ w_out


def layer_loss(mask, *args):
    return (layer(*args) * mask).sum()


def layer_arguments():
    shapes = [(B, S, E), (E,), (E, H, D), (E, H, D), (E, H, D), (H, D, E), (E, F), (F, E)]
    factors = [1, 1, 0.08, 0.08, 0.08, 0.08, 0.08, 0.04]
    return [random(*shape) * factor for shape, factor in zip(shapes, factors)]


def prepared(f, how):
    """f as it is, compiled, or compiled to CUDA graphs, which spare the host the launches."""
    if how == "eager":
        return f
    return torch.compile(f, dynamic=False, mode="reduce-overhead" if how == "graphs" else None)


def transformer(how):
    args = layer_arguments()
    want = layer(*(a.double() for a in args))
    f = prepared(layer, how)
    return queued(lambda: f(*args), lambda y: difference(y, want, 1e-4))


def transformer_grad(how):
    """The gradient of the output, weighed by random numbers, with respect to weights and input."""
    args, mask = layer_arguments(), random(B, S, E)

    def gradient(f, args, mask):
        with torch.enable_grad():
            args = [a.detach().requires_grad_() for a in args]
            return torch.autograd.grad(f(mask, *args), args)

    want = gradient(layer_loss, [a.double() for a in args], mask.double())
    f = prepared(layer_loss, how)

    def check(got):
        faults = [difference(g, w, 1e-4 * float(w.abs().max())) for g, w in zip(got, want)]
        return next((fault for fault in faults if fault), "")

    return queued(lambda: gradient(f, args, mask), check)


def factories():
    rows = {"eager_op": lambda: eager_op(queued), "eager_op:host": lambda: eager_op(host_time),
            "attention": lambda: attention(*sizes.ATTENTION),
            "attention_grad": lambda: attention_grad(False),
            "attention_causal_grad": lambda: attention_grad(True),
            "replay_line": lambda: replayed_lines(1),
            "replay_branches": lambda: replayed_lines(sizes.BRANCHES)}
    for dtype, batch, length in sizes.ATTENTIONS:
        rows[sizes.attention_name(dtype, length)] = lambda d=DTYPES[dtype], b=batch, n=length: attention(
            b, 16, n, 128, d)
    for size in sizes.SMALL:
        rows[sizes.small_name(*size)] = lambda s=size: small_products(*s)
    for size in sizes.SQUARE + sizes.ODD:
        rows[sizes.product_name(*size)] = lambda s=size: product(*s)
    for how in ("eager", "compiled", "graphs"):
        rows[f"transformer:{how}"] = lambda how=how: transformer(how)
        rows[f"transformer_grad:{how}"] = lambda how=how: transformer_grad(how)
    for how in ("eager", "compiled"):
        compiled = how == "compiled"
        rows[f"distances_2000:{how}"] = lambda c=compiled: distances(c)
        for name, f in (("fused_chain", chain), ("softmax", softmax), ("rms_norm", rms_norm)):
            for n in sizes.MATRIX_ROWS:
                rows[f"{name}_{n}:{how}"] = lambda f=f, n=n, c=compiled: matrix_function(
                    f, n, c, scale=f is rms_norm)
    return rows


if __name__ == "__main__":
    versions = {"torch": torch.__version__}
    if DEVICE == "cuda":
        versions.update(cuda=str(torch.version.cuda), gpu=torch.cuda.get_device_name())
    sys.exit(serve("torch", versions, factories()))
