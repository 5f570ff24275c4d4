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


def factories():
    rows = {"eager_op": eager_op}
    for n in (1024, 2048):
        rows[f"sgemm_{n}"] = lambda n=n: gemm(n, torch.float32)
        rows[f"bf16_matmul_{n}"] = lambda n=n: gemm(n, torch.bfloat16)
    return rows


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(serve("torch", {"torch": torch.__version__}, factories()))
