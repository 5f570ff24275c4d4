"""Sizes of the rows on one GPU: those of bench/support/gpu_sizes.h."""

import os

SCALE = int(os.environ.get("SHMAP_BENCH_SCALE") or 1)  # extents are divided by it, to look, not measure


def scaled(extent):
    return max(min(extent, 16), extent // SCALE)


# (m, k, n)
SQUARE = [(n, n, n) for n in (4096, 8192, 16384)]
ODD = [(1000, 1000, 1000), (1111, 3333, 2222), (2047, 2047, 2047), (2049, 2049, 2049),
       (3000, 3000, 3000), (4095, 4096, 4097), (5000, 5000, 5000), (6000, 1536, 1536),
       (8191, 1024, 8193), (16, 8192, 8192), (64, 4096, 14336), (128, 8192, 8192),
       (8192, 127, 8192), (8192, 8192, 64), (12288, 768, 3072), (2560, 2560, 10240),
       (4096, 11008, 4096), (7168, 7168, 2112), (512, 16384, 512), (333, 9999, 777)]
RINGS = [(devices, rows) for devices in (8, 4, 2) for rows in (1024, 2048, 4096)]
MATRIX_ROWS = (4096, 8192, 16384)
COLUMNS = 4096
CHAINED, BRANCHES, SIDE = 100, 8, 64  # of the replays: products of SIDE × SIDE matrices
RANDOMS = 16 << 20  # bits, and normals
ATTENTION = (4, 16, 4096, 128)  # batch, heads, sequence, d
ATTENTIONS = [("bf16", 16, 1024), ("bf16", 8, 2048), ("bf16", 4, 4096), ("bf16", 2, 8192),
              ("bf16", 16, 1000), ("bf16", 4, 4095), ("bf16", 2, 8191), ("f16", 16, 1000),
              ("f16", 4, 4096)]  # dtype, batch, sequence; 16 heads, d = 128
SMALL = [("f32", 64, 64), ("f32", 128, 128), ("f32", 256, 256), ("f32", 16, 512),
         ("bf16", 64, 64), ("bf16", 128, 128), ("f16", 64, 64), ("f64", 64, 64),
         ("f64", 128, 128)]  # dtype, rows, side
SMALL_CHAINED = 50
KEYS, OF_KEY = 1 << 20, 16  # of bits of many keys
POINTS, COORDINATES = 2000, 64  # of distances


def product_name(m, k, n):
    return f"matmul_{m}x{k}x{n}"


def attention_name(dtype, rows):
    return f"attention_{dtype}_{rows}"


def small_name(dtype, rows, side):
    return f"small_{dtype}_{rows}x{side}"


def sampled_rows(n):
    return [part * (n - 1) // 3 for part in range(4)]
