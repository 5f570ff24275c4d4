#!/usr/bin/env python3
"""Writes op_sharding.inc: shardings as XLA's OpSharding, and their bytes.

    python3 -m venv v && v/bin/pip install jax==0.10.2
    v/bin/python tests/golden/make_op_sharding_goldens.py

Each entry is {mesh shape, axis names, spec, dims of the array, text, bytes}; `others` has messages
that are no NamedSharding's: text, bytes.
"""
import os
import pathlib

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import numpy as np
from jax._src.lib import xla_client as xc
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def spec_text(spec):
    entry = lambda e: "none" if e is None else '"%s"' % e if isinstance(e, str) else (
        "axes(%s)" % ", ".join('"%s"' % n for n in e))
    return "P(%s)" % ", ".join(entry(e) for e in spec)


def bytes_text(proto):
    return '"%s"' % proto.SerializeToString().hex()


I, J, K = "i", "j", "k"
named = []
for shape, names in (((8,), (I,)), ((4, 2), (I, J)), ((2, 2, 2), (I, J, K)), ((8, 1), (I, J)), ((1,), (I,)),
                     ((1, 4, 2), (I, J, K)), ((2, 3), (I, J))):
    mesh = Mesh(np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape), names)
    specs = [(), (I,), (None, I)]
    if len(names) > 1:
        specs += [(J,), (I, J), (J, I), ((I, J),), ((J, I),), (None, (J, I)), (None, J, I)]
    if len(names) > 2:
        specs += [(K,), (K, J, I), (J, (K, I)), ((K, I),), ((I, K), J), ((K, J, I),)]
    for spec in specs:
        for ndim in {max(len(spec), 1), max(len(spec), 1) + 2}:
            hlo = NamedSharding(mesh, P(*spec))._to_xla_hlo_sharding(ndim)
            named.append('{{%s}, {%s}, %s, %d, "%s", %s},' % (
                ", ".join(map(str, shape)), ", ".join('"%s"' % n for n in names), spec_text(spec), ndim,
                hlo, bytes_text(hlo.to_proto())))

others = []


def add(**fields):
    proto = xc.OpSharding()
    for name, value in fields.items():
        setattr(proto, name, value)
    try:
        text = str(xc.HloSharding.from_proto(proto))
    except Exception:
        text = ""
    others.append('{"%s", %s},' % (text, bytes_text(proto)))


T = xc.OpSharding.Type
add(type=T.MAXIMAL, tile_assignment_dimensions=[1], tile_assignment_devices=[3])
add(type=T.MANUAL)
add(type=T.UNKNOWN)
add(type=T.OTHER, tile_assignment_dimensions=[2, 2], tile_assignment_devices=[3, 1, 2, 0])
add(type=T.OTHER, tile_assignment_dimensions=[2, 1, 2, 2], tile_assignment_devices=[0, 1, 2, 3, 4, 5, 6, 7],
    last_tile_dims=[T.MANUAL, T.REPLICATED])
add(type=T.OTHER, tile_assignment_dimensions=[300], tile_assignment_devices=list(range(300)))
one = xc.OpSharding()
one.type = T.OTHER
one.tile_assignment_dimensions = [2]
one.tile_assignment_devices = [0, 1]
two = xc.OpSharding()
two.type = T.REPLICATED
add(type=T.TUPLE, tuple_shardings=[one, two])

head = "// Written by make_op_sharding_goldens.py with JAX %s.\n// clang-format off\n" % jax.__version__
folder = pathlib.Path(__file__).parent
folder.joinpath("op_sharding.inc").write_text(head + "\n".join(named) + "\n")
folder.joinpath("op_sharding_others.inc").write_text(head + "\n".join(others) + "\n")
print(len(named), "named,", len(others), "others")
