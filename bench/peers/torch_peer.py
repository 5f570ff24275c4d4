"""The rows in torch on the CPU with two threads; its calls return when the result is there."""

import sys
import time

import torch

from protocol import Row, serve

torch.set_num_threads(2)
torch.manual_seed(7)


def difference(got, want, tolerance):
    error = float((got.double() - want.double()).abs().max())
    return "" if error <= tolerance else f"off by {error}, allowed {tolerance}"


def eager_op():
    x, y = torch.rand(1024) * 2 - 1, torch.rand(1024) * 2 - 1
    want = x.double() + y.double()
    last = []

    def time_batch(n):
        start = time.perf_counter()
        for _ in range(n):
            z = x + y
        seconds = time.perf_counter() - start
        last[:] = [z]
        return seconds

    return Row(check=lambda: difference(last[0], want, 1e-6), time_batch=time_batch)


def gemm(n, dtype):
    a = (torch.rand(n, n) * 2 - 1).to(dtype)
    b = (torch.rand(n, n) * 2 - 1).to(dtype)
    rows = torch.linspace(0, n - 1, 16).long()
    want = a[rows].double() @ b.double()
    tolerance = 1e-2 if dtype == torch.float32 else 1.0
    last = []

    def call():
        last[:] = [a @ b]

    return Row(call, lambda: difference(last[0][rows], want, tolerance))


def chain(x):
    return torch.sqrt(torch.clamp_min(torch.square(x * 1.5 + 0.25) - x, 0.125))


def softmax(x):
    return torch.softmax(x, 1)


def layer_norm(x, scale, bias):
    return torch.nn.functional.layer_norm(x, (x.shape[1],), scale, bias)


def function(f, shapes, tolerance, compiled):
    """f on random data, whose result on doubles is what is wanted. The compiled form needs a C++
    compiler that the library can use; where it has none the row fails and says so."""
    args = [torch.rand(shape) * 2 - 1 for shape in shapes]
    want = f(*(a.double() for a in args))
    g = torch.compile(f) if compiled else f
    last = []

    def call():
        last[:] = [g(*args)]

    return Row(call, lambda: difference(last[0], want, tolerance))


def factories():
    rows = {"eager_op": eager_op}
    square = (4096, 4096)
    for f, shapes, tolerance in ((chain, [(1 << 24,)], 1e-5), (softmax, [square], 2e-5),
                                 (layer_norm, [square, (4096,), (4096,)], 2e-5)):
        name = "fused_chain" if f is chain else f.__name__
        for how in ("eager", "compiled"):
            rows[f"{name}:{how}"] = (
                lambda f=f, s=shapes, t=tolerance, c=how == "compiled": function(f, s, t, c))
    for n in (1024, 2048):
        rows[f"sgemm_{n}"] = lambda n=n: gemm(n, torch.float32)
        rows[f"bf16_matmul_{n}"] = lambda n=n: gemm(n, torch.bfloat16)
    return rows


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(serve("torch", {"torch": torch.__version__}, factories()))
