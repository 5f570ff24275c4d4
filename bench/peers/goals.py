"""The comparisons and the ratios to reach: one Comparison for each line of the table.

A ratio is the peer's time over ours, so more is better. If there are several (program, row) pairs,
the peer is the one with the lowest median in the same run.
"""

from dataclasses import dataclass, field


@dataclass
class Comparison:
    name: str  # of the row, as --rows takes it
    ours: tuple  # (program, row)
    peer: str  # how the table calls the peer
    theirs: list = field(default_factory=list)  # (program, row) pairs; empty: a bound in µs
    must: float | None = None  # least ratio, or most µs where `theirs` is empty
    stretch: float | None = None
    added: bool = False  # the figure is ours less theirs, in µs; the bounds are upper ones
    # The figure is (serial - ours) / min(copies, products), where `theirs` are these three, in this
    # order: the fraction of the time that could be hidden and is.
    overlap: bool = False
    missing: str = ""  # why the row cannot be run yet; it is not tried


def comparisons():
    out = []

    def compare(name, peer, theirs, must=None, stretch=None, ours=None, overlap=False):
        ours = ours or ("shmap", name)
        out.append(Comparison(name, ours, peer, theirs, must, stretch, overlap=overlap))

    compare("eager_op", "a bound", [], 0.17, 0.12)
    compare("eager_op", "JAX eager", [("jax", "eager_op:queued"), ("jax", "eager_op:waited")], 20)
    compare("eager_op", "libtorch C++", [("libtorch", "eager_op")], 2)
    compare("eager_op", "torch, Python", [("torch", "eager_op")])

    compare("eager_body", "hand-written loop", [("hand_loop", "eager_body")], 0.75, 0.9)
    compare("eager_body", "JAX jitted", [("jax", "eager_body:jit")], 6, 15)
    compare("eager_body", "JAX eager", [("jax", "eager_body:eager")])
    compare("jit_body", "JAX jitted", [("jax", "eager_body:jit")], 15, 30)
    compare("jit_body", "hand-written loop", [("hand_loop", "eager_body")])

    collectives = {
        "psum": (("1kb", 100, 500), ("1mb", 4, 8), ("16mb", 4, 8)),
        "all_gather": (("1kb", 50, None), ("1mb", 10, None), ("4mb", 20, 100)),
        "psum_scatter": (("1kb", 50, None), ("1mb", 1.6, None), ("16mb", 1.6, None)),
        "all_to_all": (("1kb", 50, None), ("1mb", 3, None), ("16mb", 10, None)),
        "ppermute": (("1kb", 50, None), ("1mb", 100, None), ("16mb", 1000, None)),
    }
    for prefix in ("", "jit_"):
        for kind, sizes in collectives.items():
            for size, must, stretch in sizes:
                row = f"{kind}_{size}"
                ours = ("shmap", prefix + row)
                compare(ours[1], "JAX jit", [("jax", row)], must, stretch, ours)
                compare(ours[1], "OpenMPI np=8", [("mpi", row)], 1 if kind == "psum" else None,
                        ours=ours)
    for size in ("1mb", "16mb"):
        for threads, must in (("one", 0.9), ("two", None)):
            compare(f"ppermute_{size}_spaces", f"memcpy, {threads} thread{'s' * (threads == 'two')}",
                    [("memory_floor", f"memcpy_{size}:{threads}_thread{'s' * (threads == 'two')}")],
                    must, ours=("shmap_spaces", f"ppermute_{size}"))

    for n in (1024, 2048):
        row = f"sgemm_{n}"
        compare(row, "best of oneDNN, OpenBLAS", [("onednn", row), ("openblas", row)], 0.95, 1)
        compare(row, "JAX jit", [("jax", row)], 1.15)
        compare(row, "torch", [("torch", row)])
    for n in (1024, 2048):
        row = f"bf16_matmul_{n}"
        compare(row, "oneDNN", [("onednn", row)], 0.97, 1)
        compare(row, "torch", [("torch", row)], 1.2)
        compare(row, "JAX jit", [("jax", row)], 3)

    raw = lambda row: [("onednn", row), ("openblas", row)]  # noqa: E731
    for prefix in ("", "jit_"):
        compare(f"{prefix}cm_seed", "eight raw GEMMs", raw("gemm_cm_x8"), 0.96, 1)
        compare(f"{prefix}cm_seed", "JAX jit", [("jax", "cm_seed")], 1.25)
        for kind in ("gather", "scatter"):
            row = f"{prefix}cm_{kind}"
            compare(row, "one raw GEMM", raw("gemm_cm"), 0.96, 1)
            compare(row, "JAX, its best form",
                    [("jax", f"cm_{kind}:{how}")
                     for how in ("overlapped", "serial", "partitioned")], 1.4)
            # The library's own: the form that the model takes, and each that can be asked for.
            ours = f"{row}_automatic"
            compare(ours, "its plain form", [("shmap", f"{row}_none")], 0.97)
            compare(ours, "JAX, its best form",
                    [("jax", f"cm_{kind}:{how}")
                     for how in ("overlapped", "serial", "partitioned")], 1.4)
            for form in ("ring", "two_rings"):
                compare(f"{row}_{form}", "its plain form", [("shmap", f"{row}_none")])

    # Over slow links between memory spaces.
    for row in ("overlap_link", "overlap_link_eager", "overlap_link_einsum"):
        compare(row, "the serial form",
                [("shmap_link", f"link:{part}") for part in ("serial", "copies", "products")],
                0.85, 0.95, ("shmap_link", row), overlap=True)

    for row, must, of_copy, of_copy_stretch in (
            ("fused_chain", 5, 0.9, 0.95), ("softmax", 4, 0.65, 0.85), ("layer_norm", 4, 0.75, 0.9)):
        ours = ("shmap_jit", row)
        compare(row, "JAX jit", [("jax", row)], must, 8, ours)
        compare(row, "torch, compiled or eager",
                [("torch", f"{row}:compiled"), ("torch", f"{row}:eager")], must, 8, ours)
        compare(row, "a copy of the same bytes", [("limit", f"memory:{2 * ROWS_BYTES}")], of_copy,
                of_copy_stretch, ours)
    compare("first_call", "JAX jit", [("jax", "first_call")], 100, 400)
    compare("trace_1000", "JAX make_jaxpr", [("jax", "trace_1000")], 15, 50,
            ("shmap_jit", "trace_1000"))

    for row, must, stretch in (("transformer", 2.4, 3), ("transformer_first_call", 100, 400),
                               ("transformer_first_two_calls", None, None)):
        compare(row, "JAX jit", [("jax", row)], must, stretch, ("shmap_layer", row))
    compare("transformer", "its products alone", raw("layer_products"), None, 0.8,
            ("shmap_layer", "transformer"))

    for row, must, stretch in (("transformer_grad", 2.4, 3),
                               ("transformer_grad_first_call", 100, 400),
                               ("transformer_grad_first_two_calls", None, None),
                               ("mlp_grad", 1.6, None)):
        compare(row, "JAX jit", [("jax", row)], must, stretch, ("shmap_grad", row))
    compare("transformer_grad", "its products alone", raw("layer_grad_products"), None, 0.8,
            ("shmap_grad", "transformer_grad"))
    compare("grad_1000", "JAX make_jaxpr", [("jax", "grad_1000")], 30, 50,
            ("shmap_grad", "grad_1000"))

    for row in ("attention_2048", "attention_2048_grad"):
        compare(row, "its own with the scores written", [("shmap_scores", row)],
                ours=("shmap_grad", row))

    # µs a call and device on so many devices: against itself at 8, and against JAX.
    for n in DEVICE_COUNTS:
        for row in ("eager_op_a_device", "jit_psum_a_device"):
            ours = (f"shmap_on_{n}", row)
            if n != DEVICE_COUNTS[0]:
                compare(f"{row}_{n}", "itself on 8", [(f"shmap_on_{DEVICE_COUNTS[0]}", row)], 1,
                        ours=ours)
        compare(f"jit_psum_a_device_{n}", "JAX jit", [(f"jax_on_{n}", "jit_psum_a_device")],
                50 if n == DEVICE_COUNTS[-1] else None, ours=ours)
    return out


DEVICE_COUNTS = (8, 64, 512)
ROWS_BYTES = 64 << 20  # that fused_chain, softmax and layer_norm read, and that they write

# Measured once, not in rounds.
QUEUED_CALLS = 100_000
QUEUED_GROWTH_BOUND = 256 << 20  # bytes: what "bounded memory" allows
REPLICATED_BYTES = 64 << 20  # of the argument, a device
REPLICATED_SLACK = 1.05
# must, stretch: of what JAX reports
LAYER_MEMORY, LAYER_GRAD_MEMORY = (1, 0.5), (0.7, 0.5)
FIRST_RESULT = (50, 200)  # must, stretch: a process started anew, against Python with JAX
FIRST_RESULT_US = (5000, 2500)  # and in µs
