"""The comparisons on one GPU; `goals.py` says how to read them."""

from goals import Comparison
from gpu_sizes import (ATTENTIONS, MATRIX_ROWS, ODD, RINGS, SMALL, SQUARE, attention_name, product_name,
                       small_name)


def gpu_comparisons():
    out = []

    def compare(name, peer, theirs, must=None, stretch=None, ours=None, **more):
        out.append(Comparison(name, ours or ("gpu", name), peer, theirs, must, stretch, **more))

    compare("eager_op", "empty launches", [("floor", "launch")], 0.5, 0.2, added=True)
    compare("eager_op", "torch, Python", [("torch", "eager_op")], 2)
    compare("eager_op", "JAX eager", [("jax", "eager_op")])
    compare("eager_op:host", "of the host alone", [])
    compare("eager_op:host", "an empty launch", [("floor", "launch:host")], added=True)
    compare("eager_op:host", "torch, Python", [("torch", "eager_op:host")])

    compare("replay_line:host", "a bound, of the host alone", [], 4)
    compare("replay_line:host", "empty kernels, raw graph", [("floor", "replay_line:host")])
    compare("replay_line", "torch CUDA graph", [("torch", "replay_line")])
    compare("replay_line", "JAX jit", [("jax", "replay_line")], 1.5)
    compare("replay_line", "empty kernels, raw graph", [("floor", "replay_line")])
    compare("replay_branches", "torch CUDA graph", [("torch", "replay_branches")], 1 / 1.1)
    compare("replay_branches", "JAX jit", [("jax", "replay_branches")], 1.5)
    compare("replay_branches", "as many in one line", [("gpu", "replay_serial")], None, 1 / 0.4)
    compare("replay_branches", "empty kernels, raw graph", [("floor", "replay_branches")])
    compare("replay_branches:host", "empty kernels, raw graph",
            [("floor", "replay_branches:host")])

    def product(size, stretch):
        name = product_name(*size)
        ours = ("gpu_matmul_alone", name)
        compare(name, "cuBLASLt, best of 24", [("floor", name)], 0.98, ours=ours)
        compare(name, "torch", [("torch", name)], 1, stretch, ours)

    for size in SQUARE:
        product(size, None)

    def bound_by_memory(n):
        for row, must, stretch in (("fused_chain", 0.90, 0.95), ("softmax", 0.85, 0.92),
                                   ("rms_norm", 0.85, 0.92)):
            name = f"{row}_{n}"
            compare(name, "copy of the bytes", [("floor", f"copy_{n}")], must, stretch)
            compare(name, "best of torch and JAX",
                    [("torch", f"{name}:compiled"), ("torch", f"{name}:eager"), ("jax", name)], 1)

    bound_by_memory(MATRIX_ROWS[0])
    compare("psum_64mb", "one pass over memory", [("floor", "psum_64mb")], 0.8)
    # The floor computes the same numbers in registers and stores none: the bound of the arithmetic.
    for row in ("random_bits_16m", "random_normal_16m"):
        compare(row, "the arithmetic alone", [("floor", row)], 0.85)
        compare(row, "JAX jit", [("jax", row)])
    compare("random_bits_of_keys", "as many of one key", [("gpu", "random_bits_16m")])
    compare("random_bits_of_keys", "JAX jit", [("jax", "random_bits_of_keys")])
    compare("distances_2000", "torch.compile", [("torch", "distances_2000:compiled")])
    compare("distances_2000", "torch, eager", [("torch", "distances_2000:eager")])
    compare("distances_2000", "JAX jit", [("jax", "distances_2000")])
    # The time of a product in a chain. cuBLASLt is called as the library calls it for larger ones.
    for size in SMALL:
        name = small_name(*size)
        compare(name, "cuBLASLt, called here", [("gpu_large", name)], ours=("gpu_alone", name))
        compare(name, "torch CUDA graph", [("torch", name)], ours=("gpu_alone", name))

    for devices, rows in RINGS:
        name = f"cm_{devices}_{rows}"
        ours = ("gpu_matmul", name)
        compare(name, "one product, cuBLASLt", [("floor", name)], 0.93, 0.98, ours)
        compare(name, "gathered, then multiplied", [("gpu_matmul", f"{name}:serial")], 0.98,
                ours=ours)
    compare("cm_8_1024_spaces", "gathered, then multiplied",
            [("gpu_matmul_spaces", "cm_8_1024:serial")], ours=("gpu_matmul_spaces", "cm_8_1024"))
    staged = "gpu_matmul_staged"
    compare("overlap_staged", "the serial form",
            [(staged, "staged:serial"), (staged, "staged:copies"), (staged, "staged:products")],
            0.85, 0.95, (staged, "overlap_staged"), overlap=True)
    compare("attention", "torch SDPA", [("torch", "attention")], 0.97, 1)
    compare("attention", "JAX", [("jax", "attention")], 0.97, 1)
    for row in ("attention_grad", "attention_causal_grad"):
        compare(row, "torch SDPA", [("torch", row)], 0.95)
        compare(row, "JAX", [("jax", row)], 0.95)
        # cuDNN as torch and JAX call it: q's cotangent is added up in any order.
        compare(f"{row}:unordered", "torch SDPA", [("torch", row)])
        compare(f"{row}:unordered", "JAX", [("jax", row)])
    # Where cuDNN is not installed. Backward has no goal.
    compare("attention:own", "torch SDPA", [("torch", "attention")], 0.6)
    compare("attention:own_wgmma", "torch SDPA", [("torch", "attention")], 0.6)
    # The chosen kernel, against the kernels to choose from.
    for row in ("attention", "attention_grad", "attention_causal_grad"):
        compare(row, "the own kernels", [("gpu", f"{row}:own")])
        compare(row, "cuDNN, called here", [("gpu", f"{row}:cudnn")])

    for dtype, _, length in ATTENTIONS:
        name = attention_name(dtype, length)
        compare(name, "torch SDPA", [("torch", name)])
        compare(name, "JAX", [("jax", name)])
        for kernel in ("own", "own_wgmma"):
            compare(f"{name}:{kernel}", "torch SDPA", [("torch", name)])
        compare(f"{name}:own_wgmma", "the other own kernel", [("gpu", f"{name}:own")])
        compare(f"{name}:own_wgmma", "cuDNN, called here", [("gpu", f"{name}:cudnn")])

    # Over eight virtual devices, and on one device, as the peers run it.
    for row in ("transformer", "transformer_grad"):
        for name, program in ((row, "gpu"), (f"{row}_on_one", "gpu_alone")):
            compare(name, "JAX jit", [("jax", row)], 1, 1.3, (program, name))
            compare(name, "torch.compile", [("torch", f"{row}:compiled")], 1, 1.3, (program, name))
        # A row of its own: it is compiled once more.
        compare(f"{row}_on_one:graphs", "torch.compile, CUDA graphs", [("torch", f"{row}:graphs")],
                ours=("gpu_alone", f"{row}_on_one"))
    for size in ODD:
        product(size, 1.03)
    for n in MATRIX_ROWS[1:]:
        bound_by_memory(n)
    return out
