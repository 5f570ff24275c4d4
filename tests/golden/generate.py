"""Writes the golden values that the C++ tests compare with.

    python tests/golden/generate.py [topic ...]

Needs tests/golden/requirements.txt (Python 3.11 or newer). The JSON files are checked in, so that
the tests themselves need no Python. Every file is rewritten whole and is the same on every run.
"""

import importlib
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

TOPICS = [
    "promotion",
    "ops_elementwise",
    "ops_shape",
    "ops_reduce",
    "ops_linalg",
    "indexing",
    "shard_map",
    "ragged_all_to_all",
    "control_flow",
    "vmap",
    "derivatives",
    "control_flow_grad",
    "gradients",
    "losses",
    "overlap",
    "random",
    "random_grad",
    "attention",
    "transformer",
    "llama",
]


def main(names):
    unknown = [name for name in names if name not in TOPICS]
    if unknown:
        sys.exit(f"unknown topics {unknown}; there are {TOPICS}")
    for name in names or TOPICS:
        topic = importlib.import_module(f"topics.{name}").make()
        path = HERE / f"{name}.json"
        topic.write(path)
        print(f"{name}: {len(topic.cases)} cases, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
