#!/usr/bin/env python3
"""Writes sharding.inc: shardings, and how jax.debug.visualize_sharding draws them.

    python3 -m venv v && v/bin/pip install jax==0.10.2 rich==15.0.0
    v/bin/python tests/golden/make_sharding_goldens.py

Each entry is {shape, {{id, {start, stop}...}...}, text}. Drawings that would pass 80 columns, which
lose their labels, are left out.
"""
import contextlib
import io
import itertools
import os
import pathlib

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import numpy as np
import rich
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

entries = []


def add(shape, mesh_shape, names, spec, reverse=False):
    count = int(np.prod(mesh_shape))
    devices = np.array(jax.devices()[:count])
    mesh = Mesh((devices[::-1] if reverse else devices).reshape(mesh_shape), names)
    sharding = NamedSharding(mesh, P(*spec))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        jax.debug.visualize_sharding(shape, sharding, use_color=False)
    text = out.getvalue().rstrip("\n") + "\n"
    boxes = []
    for device, index in sharding.devices_indices_map(shape).items():
        slices = ", ".join("{%d, %d}" % s.indices(n)[:2] for s, n in zip(index, shape))
        boxes.append("{%d, {%s}}" % (device.id, slices))
    labels = sum(text.count(str(device.id)) for device in devices)
    if labels < count or max(map(len, text.splitlines())) >= 80:
        return
    dims = ", ".join(map(str, shape))
    entry = '{{%s}, {%s}, R"(%s)"},' % (dims, ", ".join(boxes), text)
    if entry not in entries:
        entries.append(entry)


I, J, IJ, JI = "i", "j", ("i", "j"), ("j", "i")
for mesh_shape, names in (((8,), (I,)), ((4, 2), IJ), ((2, 2), IJ), ((1,), (I,)), ((3,), (I,)), ((2, 3), IJ)):
    ones = [(), (I,)] + ([(J,), (IJ,), (JI,)] if len(names) == 2 else [])
    for spec in ones:
        for n in (24, 48, 4800):
            add((n,), mesh_shape, names, spec)
    twos = [(), (I,), (None, I)]
    if len(names) == 2:
        twos += [(I, J), (J, I), (None, J), (J,), (IJ,), (JI,), (None, IJ)]
    for spec, shape in itertools.product(twos, ((24, 24), (24, 48), (48, 24), (480, 24))):
        add(shape, mesh_shape, names, spec)
    add((24, 24), mesh_shape, names, (I,), reverse=True)

out = pathlib.Path(__file__).with_name("sharding.inc")
head = "// Written by make_sharding_goldens.py with JAX %s.\n// clang-format off\n" % jax.__version__
out.write_text(head + "\n".join(entries) + "\n")
print(len(entries), "drawings,", out.stat().st_size, "bytes")
