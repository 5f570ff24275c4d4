"""The rows of the wide table in torch with two threads, an operation at a time: its calls return
when the result is there. Compiling each row would take longer than all rows are measured."""

import sys

import numpy as np
import torch

import wide_rows
from protocol import Row, serve
from wide_data import arguments, sample

torch.set_num_threads(2)

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def leaves(result):
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in leaves(part)]
    return [result]


def row(function, mesh, *words):
    args = []
    for values, dtype, _ in arguments(words):
        x = torch.from_numpy(values if values.dtype != np.uint32 else values.astype(np.int64))
        args.append(x.to(DTYPES[dtype]) if dtype in DTYPES else x)
    last = []
    # A row that differentiates has this attribute.
    derives = getattr(function, "derives", False)

    def call():
        if derives:
            last[:] = [function(*args)]
            return
        with torch.inference_mode():
            last[:] = [function(*args)]

    def values():
        return [sample(x.detach().double().numpy()) for x in leaves(last[0])]

    return Row(call, lambda: "", about=lambda: {"sample": values()})


if __name__ == "__main__":
    sys.exit(serve("torch_wide", {"torch": torch.__version__},
                   {name: (lambda *words, f=f: row(f, *words))
                    for name, f in wide_rows.torch_rows().items()}))
