"""Times the wide table: our rows (bench/wide/), JAX's and torch's (wide_rows/), and the machine's
own limits, in turns; bench/README.md describes it.

Each row's answer is compared between the programs on the same data. After every row the JSON file
and the Markdown are written anew, so that a run that ends early loses nothing; `--resume` leaves out
the rows that the JSON file has, `--again` measures the chosen rows anew and keeps the file's others."""

import argparse
import contextlib
import json
import math
import os
import pathlib
import statistics
import sys
import time

import history
from orchestrate import HERE, Failure, Program, machine, status_of
from stats import PAIRS_FOR_A_VERDICT, disturbed, interval, number, rounds, summary

MUST, STRETCH, MUST_OF_LIMIT = 1.2, 1.5, 0.9
# Rows with bounds of their own, of which no limit of the machine takes the place: must, stretch.
GOALS = {"random_bits_16m": (12, 25), "random_normal_16m": (12, 25)}
# Rows that load so many words from random places of a table of so many words.
RANDOM_WORDS = {"take_elements": (1_000_000, 1_000_000)}
BEGIN, END = "<!-- wide table: begin -->", "<!-- wide table: end -->"
# Relative to a leaf's largest value; leaves of integers and booleans have to be the same.
TOLERANCE = {"f64": 1e-8, "f32": 2e-4, "bf16": 5e-2, "f16": 2e-2}


def fleet_of(options):
    exe = lambda name: str(pathlib.Path(options.build) / "bin" / name)  # noqa: E731
    two = {"OMP_NUM_THREADS": "2"}
    python = lambda path, script: [path, str(HERE / script)] if path else None  # noqa: E731
    return {p.name: p for p in (
        Program("shmap", [exe("wide_bench"), "--serve"], {"SHMAP_DEVICES": "cpu:8"}),
        Program("jax", python(options.jax_python, "wide_jax.py")),
        Program("torch", python(options.torch_python, "wide_torch.py"), two),
        Program("limit", [exe("machine_limit"), "--serve"]))}


def limits_of(row, about):
    """Rows of machine_limit that the row has to take at least as long as."""
    out = []
    # Products have the dtype of the first argument of floats.
    dtypes = [word.split("[")[0] for word in about["args"].split()]
    dtype = next((t for t in dtypes if t in ("f32", "f64", "bf16", "f16")), None)
    if about["flops"] > 0 and dtype is not None:
        wide_units = {"bf16": ("amx_bf16", "avx512_bf16"), "f16": ("amx_fp16", "avx512_fp16")}
        flags = cpu_flags()
        if dtype == "bf16" and "avx512_bf16" in flags and "amx_bf16" not in flags:
            out.append(f"fma_bf16:{about['flops']:.0f}")
        elif not any(unit in flags for unit in wide_units.get(dtype, ())):
            out.append(f"fma_{'f64' if dtype == 'f64' else 'f32'}:{about['flops']:.0f}")
    out.append(f"memory:{max(256, about['bytes']):.0f}")
    if row in RANDOM_WORDS:
        out.append("words:{}/{}".format(*RANDOM_WORDS[row]))
    return out


def cpu_flags():
    try:
        with open("/proc/cpuinfo") as f:
            return next((line.split() for line in f if line.startswith("flags")), [])
    except OSError:
        return []


def tolerance(leaf, arguments):
    """For a leaf of that dtype, computed from arguments of those dtypes: the coarsest of floats decides."""
    return max(TOLERANCE[dtype] for dtype in {leaf, *arguments} if dtype in TOLERANCE) if leaf in TOLERANCE else 0


def differs(ours, theirs, dtypes, arguments):
    """'' or how the samples differ; dtypes: of each of our leaves, arguments: of all arguments."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results here, {len(theirs)} there"
    for number_, (a, b) in enumerate(zip(ours, theirs)):
        if len(a) != len(b):
            return f"result {number_} has another size"
        if any(v is None or not math.isfinite(v) for v in a + b):
            return f"result {number_} is not finite"
        scale = max((abs(v) for v in b), default=0.0)
        error = max((abs(v - w) for v, w in zip(a, b)), default=0.0)
        most = tolerance(dtypes[number_], arguments)
        if error > most * scale:
            return f"result {number_} is off by {error:.3g} where the largest is {scale:.3g}"
    return ""


def measure(row, fleet, options):
    out = {"row": row}
    pairs, notes = [], []
    try:
        about = fleet["shmap"].ask("prepare", row)["about"]
    except Failure as failure:
        return {**out, "verdict": "not run", "ours_failed": True, "note": f"shmap: {failure}"}
    pairs.append(("shmap", row))
    samples = about.pop("sample")
    dtypes, arguments = about.pop("dtypes"), [word.split("[")[0] for word in about["args"].split()]
    for peer in ("jax", "torch"):
        try:
            answer = fleet[peer].ask("prepare", row, about["mesh"] or "-", about["args"])
            pairs.append((peer, row))
            fault = differs(samples, answer["about"]["sample"], dtypes, arguments)
            if fault:
                notes.append(f"#wrong against {peer}: {fault}")
        except Failure as failure:
            if f"'{row}'" not in str(failure):  # else it has no such row
                notes.append(f"{peer}: {failure}")
    if not pairs[1:]:
        notes.append("no peer")
    for limit in limits_of(row, about):
        try:
            fleet["limit"].ask("prepare", limit)
            pairs.append(("limit", limit))
        except Failure as failure:
            notes.append(f"limit: {failure}")
    times = {pair: [] for pair in pairs}
    pairs = take_rounds(options.rounds, pairs, times, notes, fleet, options)
    line = judge({**out, **about, "us": named(times)}, notes)
    if line["verdict"] == "undecided" and options.more_rounds:
        pairs = take_rounds(options.more_rounds, pairs, times, notes, fleet, options)
        line = judge({**out, **about, "us": named(times)}, notes)
    for pair in pairs:
        try:
            fleet[pair[0]].ask("release", pair[1])
        except Failure:
            pass
    return line


def named(times):
    return {f"{program}:{row}": us for (program, row), us in times.items()}


def take_rounds(rounds, pairs, times, notes, fleet, options):
    """Appends a time of each (program, row) of `pairs` to `times` a round, and returns the pairs
    without those that failed, whose times are dropped."""
    for n in range(rounds):
        for pair in pairs if n % 2 == 0 else pairs[::-1]:
            time.sleep(options.settle)
            try:
                with alone(fleet, pair[0]):
                    fleet[pair[0]].ask("round", pair[1], options.ms / 4)  # its threads wake up
                    times[pair].append(fleet[pair[0]].ask("round", pair[1], options.ms)["us"])
            except Failure as failure:
                notes.append(f"{pair[0]}: {failure}")
                times[pair] = []
                pairs = [p for p in pairs if p != pair]
    return pairs


@contextlib.contextmanager
def alone(fleet, name):
    """The other programs are stopped: a team of theirs that still spins would be measured too."""
    others = [program for other, program in fleet.items() if other != name]
    for program in others:
        program.let_run(False)
    try:
        yield
    finally:
        for program in others:
            program.let_run(True)


def ratio(theirs, ours):
    return [t / o for t, o in zip(theirs, ours)]


def judge(line, notes):
    """Adds the better peer's ratio, that of the slowest limit, and the verdict."""
    row, us = line["row"], line["us"]
    ours = us[f"shmap:{row}"]
    median = lambda key: statistics.median(us[key])  # noqa: E731
    peers = [p for p in ("jax", "torch") if us.get(f"{p}:{row}")]
    # Two threads that were given one core are no limit of the machine: of its rounds the faster ones
    # count, and the slowest limit is the one that holds.
    limit_us = {k: statistics.quantiles(v, n=4)[0] for k, v in us.items()
                if k.startswith("limit:") and len(v) > 1}
    line["note"] = "; ".join(notes)
    if not ours:
        return {**line, "verdict": "not run", "ours_failed": True}
    if not peers:
        return {**line, "verdict": "not run"}
    peer = min(peers, key=lambda p: median(f"{p}:{row}"))
    values = ratio(us[f"{peer}:{row}"], ours)
    line.update(ours_us=statistics.median(ours), peer=peer, peer_us=median(f"{peer}:{row}"),
                ratio=summary(values), ratios={p: statistics.median(ratio(us[f"{p}:{row}"], ours))
                                               for p in peers})
    of_limit = []
    if limit_us:
        limit = max(limit_us, key=limit_us.get)
        of_limit = [limit_us[limit] / o for o in ours]
        line.update(limit=limit.split(":")[1], limit_us=limit_us[limit], of_limit=summary(of_limit),
                    disturbed=disturbed(of_limit))
        if line["disturbed"]:
            of_limit = []
    if row in GOALS:
        must, stretch = GOALS[row]
        line["note"] = "; ".join([f"must ≥ {must} ×, stretch ≥ {stretch} ×", *notes])
        line["verdict"] = verdict_of((values, must))
        line["verdict_stretch"] = verdict_of((values, stretch))
        return line
    line["verdict"] = verdict_of((values, MUST), (of_limit, MUST_OF_LIMIT))
    line["verdict_stretch"] = verdict_of((values, STRETCH))
    return line


def verdict_of(*claims):
    """met where the interval of one claim lies above its bound, missed where those of all lie
    below theirs."""
    spans = [(interval(values), bound) for values, bound in claims if values]
    if any(span is None or len(values) < PAIRS_FOR_A_VERDICT
           for (values, _), (span, _) in zip(claims, spans)):
        return "undecided"
    if any(low >= bound for (low, _), bound in spans):
        return "met"
    return "missed" if all(high < bound for (_, high), bound in spans) else "undecided"


HEADER = ["row", "arguments", "ours µs", "JAX ×", "torch ×", "better peer × [95 %]",
          "of the limit", "must", "stretch", "note"]


def cells(line, about):
    span = lambda s: f"{number(s['median'])} [{number(s['low'])}, {number(s['high'])}]"  # noqa: E731
    ratios = line.get("ratios", {})
    limit = ""
    if "of_limit" in line:
        limit = ("disturbed" if line.get("disturbed") else
                 f"{number(line['of_limit']['median'])} {line['limit']}")
    args = line.get("args", "") + (f" on {line['mesh']}" if line.get("mesh") else "")
    return [line["row"], args, number(line.get("ours_us")), number(ratios.get("jax")),
            number(ratios.get("torch")), span(line["ratio"]) if "ratio" in line else "", limit,
            line["verdict"], line.get("verdict_stretch", ""), "; ".join(note_of(line, about))]


def note_of(line, about):
    """Facts about the row that the table's head does not say."""
    rounds = max(map(len, line.get("us", {}).values()), default=about["rounds"])
    if rounds != about["rounds"]:
        yield f"{rounds} rounds"
    if line.get("date", about["date"]) != about["date"]:
        yield line["date"]
    if line["note"]:
        yield line["note"]


def summary_text(lines):
    ratios = [line["ratio"]["median"] for line in lines if "ratio" in line]
    if not ratios:
        return "No row was measured."
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    count = lambda v: sum(line["verdict"] == v for line in lines)  # noqa: E731
    return (f"{len(lines)} rows: geometric mean {mean:.3g} × the better peer; "
            f"{count('met')} met, {count('missed')} missed, {count('undecided')} undecided, "
            f"{count('not run')} not run.")


def markdown(about, lines):
    table = ["| " + " | ".join(HEADER) + " |", "|" + " --- |" * len(HEADER)]
    table += ["| " + " | ".join(c.replace("|", "\\|") for c in cells(line, about)) + " |"
              for line in lines]
    versions = "; ".join(f"{name}: " + ", ".join(f"{k} {v}" for k, v in found.items())
                         for name, found in about["versions"].items())
    return "\n".join([
        f"{about['cpu']}, {about['cores']} cores, {about['system']}, {about['date']}; "
        f"{about['rounds']} rounds of {about['milliseconds']:g} ms; load {about['load']:.2g} before.",
        "", summary_text(lines), "", *table, "", f"Versions: {versions}.", ""])


def write(options, about, lines):
    if options.json:
        part = pathlib.Path(options.json + ".part")
        part.write_text(json.dumps({"about": about, "lines": lines}, indent=1))
        part.replace(options.json)
    if options.markdown:
        path = pathlib.Path(options.markdown)
        old = path.read_text() if path.exists() else ""
        before, begin, rest = old.partition(BEGIN)
        _, end, after = rest.partition(END)
        text = markdown(about, lines)
        if begin and end:  # a part of a larger page
            text = f"{before}{BEGIN}\n{text}{END}{after}"
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with bin/")
    parser.add_argument("--rows", help="comma-separated names, or their beginnings with a *")
    parser.add_argument("--rounds", type=rounds, default=15)
    parser.add_argument("--more-rounds", type=int, default=0,
                        help="further rounds of a row that is undecided after the first")
    parser.add_argument("--ms", type=float, default=12, help="milliseconds a round")
    parser.add_argument("--quick", action="store_true", help="5 short rounds: no verdicts")
    parser.add_argument("--json", help="write figures and samples of time to this file")
    parser.add_argument("--markdown", help="write the table to this file, or, where it has them, "
                        f"between its lines {BEGIN} and {END}")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--resume", action="store_true", help="keep the rows of the JSON file")
    kept.add_argument("--again", action="store_true",
                      help="measure the chosen rows anew, and keep the others of the JSON file")
    parser.add_argument("--history", default=str(history.DEFAULT), help="the file of earlier figures, "
                        "by kind of machine, or none")
    parser.add_argument("--jax-python", help="a Python with the jax of requirements.txt")
    parser.add_argument("--torch-python", help="a Python with the torch of requirements.txt")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.ms = min(options.rounds, 5), min(options.ms, 8)
    options.settle = 0.015
    fleet = fleet_of(options)
    lines, measured = [], []
    if (options.resume or options.again) and options.json and pathlib.Path(options.json).exists():
        lines = json.loads(pathlib.Path(options.json).read_text())["lines"]
    about = {**machine(), "rounds": options.rounds, "milliseconds": options.ms,
             "load": os.getloadavg()[0], "versions": {}}
    try:
        for name in ("shmap", "jax", "torch", "limit"):
            try:
                fleet[name].start()
            except Failure as failure:
                if name == "shmap":
                    sys.exit(f"shmap: {failure}")
                print(f"{name}: {failure}", file=sys.stderr)
        names = fleet["shmap"].rows
        if options.rows:
            wanted = options.rows.split(",")
            matches = lambda n, w: n.startswith(w[:-1]) if w.endswith("*") else n == w  # noqa: E731
            unknown = [w for w in wanted if not any(matches(n, w) for n in names)]
            if unknown:
                sys.exit(f"no row {', '.join(unknown)}; there are {', '.join(names)}")
            names = [n for n in names if any(matches(n, w) for w in wanted)]
        order = {name: at for at, name in enumerate(fleet["shmap"].rows)}
        known = set() if options.again else {line["row"] for line in lines}
        for name in names:
            if name in known:
                continue
            line = {**measure(name, fleet, options), "date": about["date"]}
            measured.append(line)
            lines = sorted([other for other in lines if other["row"] != name] + [line],
                           key=lambda other: order.get(other["row"], len(order)))
            about["versions"] = {p.name: p.versions for p in fleet.values() if p.versions}
            write(options, about, lines)
            print("  ".join(c for i, c in enumerate(cells(line, about)) if i != 1 and c), flush=True)
    finally:
        for program in fleet.values():
            program.stop()
    print(summary_text(lines))
    if options.history != "none":
        print(history.compare(options.history, about, [
            {**line, "row": f"wide {line['row']}", "peer": "the better peer"} for line in measured]))
    return status_of(lines)


if __name__ == "__main__":
    sys.exit(main())
