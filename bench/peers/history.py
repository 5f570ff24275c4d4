"""What rows gave in earlier runs, by kind of machine, and which of them have moved since.

A kind of machine is a processor, a number of cores, and the versions of the peers and libraries. The
file has for each kind, row and peer the latest figures, one a line, the newest last:

    {"date": "2026-11-27", "library": "9799a62a", "ours_us": 0.174, "unit": "µs",
     "median": 0.174, "low": 0.173, "high": 0.216}

A row has moved if its 95 % interval does not meet that of the last run on the same kind of machine.
"""

import json
import os
import pathlib
import re
import subprocess

from stats import PAIRS_FOR_A_VERDICT

DEFAULT = pathlib.Path(__file__).resolve().parents[1] / "history.json"
KEPT = 8  # figures of a row


def processor():
    """The name of the processor with what tells its generation, which the names of virtual machines
    do not: "AMD EPYC, family 25, model 17"."""
    found = {}
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    parts = [f"{what} {found[key]}" for what, key in (("family", "cpu family"), ("model", "model"))
             if key in found]
    return ", ".join([found.get("model name", "unknown"), *parts])


def library():
    """The commit that is measured."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], text=True,
                              capture_output=True, cwd=DEFAULT.parent, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def versions_of(programs):
    """{"jax": "0.10.2", …} of what the programs say of themselves. Of a text with more than a version
    (OpenBLAS names the kernels that it has chosen) the number is taken."""
    out = {}
    for program, found in programs.items():
        for name, text in found.items():
            number = re.search(r"\d+(\.\d+)+[^\s,]*", str(text))
            if number and not program.startswith("shmap"):
                out[name] = number.group()
    return out


def same_kind(machine, cpu, cores, versions):
    return (machine["cpu"] == cpu and machine["cores"] == cores and
            all(machine["versions"].get(name, version) == version
                for name, version in versions.items()))


def better(old, new):
    more = new["median"] > old["median"]
    return more != new["unit"].startswith("µs")


def moved(old, new):
    return new["low"] > old["high"] or new["high"] < old["low"]


class History:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.machines = []
        if self.path.exists():
            self.machines = json.loads(self.path.read_text())["machines"]

    def machine(self, cpu, cores, versions):
        """The entry of this kind of machine, which now has these versions too."""
        for machine in self.machines:
            if same_kind(machine, cpu, cores, versions):
                break
        else:
            machine = {"cpu": cpu, "cores": cores, "versions": {}, "rows": {}}
            self.machines.append(machine)
        machine["versions"].update(versions)
        return machine

    def write(self):
        """One figure a line, so that a change of the file shows the rows that were measured."""
        text = lambda value: json.dumps(value, ensure_ascii=False)  # noqa: E731
        machines = []
        for m in self.machines:
            rows = ",\n".join(f"  {text(row)}: [\n   " + ",\n   ".join(map(text, figures)) + "]"
                              for row, figures in sorted(m["rows"].items()))
            machines.append(f' {{"cpu": {text(m["cpu"])}, "cores": {m["cores"]},\n'
                            f'  "versions": {text(m["versions"])},\n  "rows": {{\n{rows}}}}}')
        draft = self.path.with_name(self.path.name + ".draft")
        draft.write_text('{"machines": [\n' + ",\n".join(machines) + "]}\n")
        draft.replace(self.path)


def figures_of(lines):
    """{"row | peer": figure} of a table's lines that have an interval."""
    for line in lines:
        span = line.get("ratio", line)  # as the wide table has it, and the other one
        if "median" not in span:
            continue
        rounded = {k: float(f"{span[k]:.4g}") for k in ("median", "low", "high")}
        yield f"{line['row']} | {line['peer']}", {
            "ours_us": float(f"{line['ours_us']:.4g}"), "unit": line.get("unit", "×"), **rounded}


def compare(path, about, lines):
    """Notes the figures in the file, and returns the report in words: which rows moved since the last
    run on this kind of machine. Of runs too short for a verdict nothing is noted."""
    history = History(path)
    machine = history.machine(processor(), os.cpu_count(), versions_of(about["versions"]))
    commit = library()
    worse, improved, count, known = [], [], 0, 0
    for key, figure in figures_of(lines):
        count += 1
        figure = {"date": about["date"], "library": commit, **figure}
        old = machine["rows"].setdefault(key, [])
        if old:
            known += 1
            if moved(old[-1], figure):
                (improved if better(old[-1], figure) else worse).append(sentence(key, old[-1], figure))
        old.append(figure)
        del old[:-KEPT]
    if count and about["rounds"] >= PAIRS_FOR_A_VERDICT:
        history.write()
    return "\n".join([
        f"{known} of {count} figures are known of this kind of machine ({machine['cpu']}, "
        f"{machine['cores']} cores): {len(worse)} worse, {len(improved)} better than in its last run.",
        *(f"worse: {text}" for text in worse), *(f"better: {text}" for text in improved)])


def sentence(key, old, new):
    span = lambda f: f"{f['median']:g} {f['unit']} [{f['low']:g}, {f['high']:g}]"  # noqa: E731
    return (f"{key}: {span(new)}, ours {new['ours_us']:g} µs; on {old['date']} at {old['library']} "
            f"{span(old)}, ours {old['ours_us']:g} µs")
