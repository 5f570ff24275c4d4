"""Times the library and its peers in turns, and says which goals are met.

Every program is one process that serves rounds (bench/README.md has the protocol). For each row,
all programs that it needs prepare it; then they are timed one after another, `--rounds` times, the
order reversed every other time; a ratio is taken of each round's pair, and its median stands with a
95 % interval. Only one program works at any moment.
"""

import argparse
import dataclasses
import datetime
import fnmatch
import functools
import json
import math
import os
import pathlib
import platform
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from goals import (DEVICE_COUNTS, FIRST_RESULT, FIRST_RESULT_US, LAYER_GRAD_MEMORY, LAYER_MEMORY,
                   QUEUED_CALLS, QUEUED_GROWTH_BOUND, REPLICATED_BYTES, REPLICATED_SLACK, comparisons)
from gpu_goals import gpu_comparisons
import history
from stats import disturbed, number, rounds, summary, verdict

HERE = pathlib.Path(__file__).resolve().parent
SETTLE_SECONDS = 0.04  # thread teams of the program timed before spin for tens of milliseconds
GPU_SETTLE_SECONDS = 0.005
REPLY_SECONDS = 300
GPU_REPLY_SECONDS = 60
OPENBLAS_CORES = (None, "SkylakeX", "Cooperlake", "SapphireRapids", "Zen", "Haswell")


class Failure(Exception):
    """A program that is missing, died, or answered with an error or a wrong result. One line."""

    def __init__(self, why):
        super().__init__(" ".join(why.split())[:240])


class Program:
    """One process that serves rounds; started at its first use, and again after it died. With
    `fresh`, an error ends it too: after a fault of the GPU a process cannot use the GPU any more."""

    def __init__(self, name, command, env=None, fresh=False):
        self.name, self.command, self.env, self.fresh = name, command, env or {}, fresh
        self.process = None
        self.ready = False
        self.failure = None
        self.versions, self.rows = {}, []
        self.deadline = math.inf  # of every answer, as time.monotonic() counts
        self.reply_seconds = REPLY_SECONDS

    def launch(self):
        """Starts it without waiting until it is ready."""
        if self.failure:
            raise Failure(self.failure)
        if self.process:
            return
        if self.command is None or not shutil.which(self.command[0]):
            self.fail("not built or not installed")
        self.log = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self.log, env={**os.environ, **self.env}, bufsize=0)
        except OSError as error:
            self.fail(str(error))
        self.buffer = b""

    def start(self):
        self.launch()
        if not self.ready:
            answer = self.read()
            self.versions, self.rows = answer["versions"], answer["rows"]
            self.ready = True

    def let_run(self, running):
        """Continues the process, or stops it so that it cannot spin."""
        if self.process:
            self.process.send_signal(signal.SIGCONT if running else signal.SIGSTOP)

    def fail(self, why):
        self.failure = why
        raise Failure(why)

    def died(self):
        """Raises Failure. A process that died before it was ready is not started again."""
        status = self.process.wait()
        last = self.close_log()
        why = f"ended with status {status}" + (f": {last}" if last else "")
        if not self.ready:
            self.fail(why)
        self.process, self.ready = None, False
        raise Failure(why)

    def close_log(self):
        """Prints what the process wrote on standard error, and returns the last line."""
        self.log.seek(0)
        text = self.log.read().decode(errors="replace").strip()
        self.log.close()
        if text:
            print(text, file=sys.stderr, flush=True)
        return text.rpartition("\n")[2][-300:]

    def read(self):
        start = time.monotonic()
        deadline = min(start + self.reply_seconds, self.deadline)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                line, found, rest = self.buffer.partition(b"\n")
                if found:
                    self.buffer = rest
                    if line.startswith(b"{"):
                        return json.loads(line)
                    continue
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.process.kill()
                    self.process.wait()
                    self.close_log()
                    self.process, self.ready = None, False
                    raise Failure("no answer in the time allowed")
                data = self.process.stdout.read(1 << 16)
                if not data:
                    self.died()
                self.buffer += data

    def ask(self, *words):
        self.start()
        try:
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        except BrokenPipeError:
            self.died()
        answer = self.read()
        if "wrong" in answer:
            raise Failure("#wrong: " + answer["wrong"])
        if "error" in answer:
            if self.fresh:
                self.stop()
                self.process, self.ready = None, False
            raise Failure(answer["error"])
        return answer

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            try:
                self.process.stdin.write(b"quit\n")
                self.process.stdin.close()
                self.process.wait(5)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
        if not self.log.closed:
            self.close_log()


def tuned_openblas(binary):
    """The core type whose kernels are fastest here: OpenBLAS's own choice may be an old one."""
    times = {}
    for core in OPENBLAS_CORES:
        name = "openblas" + (f":{core}" if core else "")
        program = Program(name, [binary, name, "--serve"])
        try:
            program.ask("prepare", "sgemm_1024")
            times[name] = min(program.ask("round", "sgemm_1024", 60)["us"] for _ in range(3))
        except Failure:
            continue
        finally:
            program.stop()
    return min(times, key=times.get) if times else "openblas"


def programs(options):
    bin_ = pathlib.Path(options.build) / "bin"
    exe = lambda name: str(bin_ / name)  # noqa: E731
    two = {"OMP_NUM_THREADS": "2"}
    mpirun = shutil.which("mpirun") or "mpirun"
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    python = lambda path, script: (  # noqa: E731
        [path, str(HERE / script)] if path else None)
    out = [
        Program("shmap", [exe("shmap_bench"), "--serve"], {"SHMAP_DEVICES": "cpu:8"}),
        Program("shmap_spaces", [exe("shmap_bench"), "--serve"], {"SHMAP_DEVICES": "cpu:8/8"}),
        Program("shmap_link", [exe("link_bench"), "--serve"], {"SHMAP_DEVICES": "cpu:8/8"}),
        Program("shmap_jit", [exe("jit_bench"), "--serve"], {"SHMAP_DEVICES": "cpu:8"}),
        Program("shmap_layer", [exe("transformer_bench"), "--serve"], {"SHMAP_DEVICES": "cpu:8"}),
        Program("shmap_grad", [exe("grad_bench"), "--serve"], {"SHMAP_DEVICES": "cpu:8"}),
        Program("shmap_scores", [exe("grad_bench"), "--serve"],
                {"SHMAP_DEVICES": "cpu:8", "SHMAP_ATTENTION": "0"}),
        Program("once", [exe("once_bench")], {"SHMAP_DEVICES": "cpu:8"}),
        Program("hand_loop", [exe("hand_loop"), "--serve"]),
        Program("memory_floor", [exe("memory_floor"), "--serve"]),
        Program("limit", [exe("machine_limit"), "--serve"]),
        Program("onednn", [exe("blas_gemm"), "onednn", "--serve"], two),
        Program("openblas", [exe("blas_gemm"), "openblas", "--serve"], two),
        Program("mpi", [mpirun, *root, "--oversubscribe", "-np", "8", exe("mpi_collectives"),
                        "--serve"]),
        Program("libtorch", [exe("libtorch_eager"), "--serve"], two),
        Program("torch", python(options.torch_python, "torch_peer.py"), two),
        Program("jax", python(options.jax_python, "jax_peer.py")),
    ]
    for n in DEVICE_COUNTS:
        out += [
            Program(f"shmap_on_{n}", [exe("jit_bench"), "--serve"], {"SHMAP_DEVICES": f"cpu:{n}"}),
            Program(f"jax_on_{n}", python(options.jax_python, "jax_peer.py"),
                    {"BENCH_DEVICES": str(n)}),
        ]
    return {p.name: p for p in out}


def gpu_programs(options):
    bin_ = pathlib.Path(options.build) / "bin"
    # With one device the algorithms of products are chosen for a GPU that does nothing beside them.
    alone, one = {"SHMAP_DEVICES": "cuda:0"}, {"SHMAP_DEVICES": "cuda:0x8"}
    spaces = {"SHMAP_DEVICES": "cuda:0x8/8"}
    python = lambda path, script: [path, str(HERE / script)] if path else None  # noqa: E731
    # Our programs' library path would replace libraries that the peers bring.
    peers = {}
    if "PEER_LD_LIBRARY_PATH" in os.environ:
        peers["LD_LIBRARY_PATH"] = os.environ["PEER_LD_LIBRARY_PATH"]
    out = [
        Program("gpu", [str(bin_ / "gpu_bench"), "--serve"], one, fresh=True),
        Program("gpu_alone", [str(bin_ / "gpu_bench"), "--serve"], alone, fresh=True),
        Program("gpu_large", [str(bin_ / "gpu_bench"), "--serve"],
                {**alone, "SHMAP_SMALL_PRODUCTS": "0"}, fresh=True),
        Program("gpu_matmul", [str(bin_ / "gpu_matmul_bench"), "--serve"], one, fresh=True),
        Program("gpu_matmul_alone", [str(bin_ / "gpu_matmul_bench"), "--serve"], alone, fresh=True),
        Program("gpu_matmul_spaces", [str(bin_ / "gpu_matmul_bench"), "--serve"], spaces, fresh=True),
        Program("gpu_matmul_staged", [str(bin_ / "gpu_matmul_bench"), "--serve"],
                {**spaces, "SHMAP_LINK": "staged"}, fresh=True),
        Program("floor", [str(bin_ / "cuda_floor"), "--serve"], fresh=True),
        Program("torch", python(options.torch_python, "torch_gpu_peer.py"), peers),
        Program("jax", python(options.jax_python, "jax_gpu_peer.py"), peers),
    ]
    for program in out:
        program.reply_seconds = GPU_REPLY_SECONDS
    return {p.name: p for p in out}


def measure(row, lines, fleet, options):
    """Times one row. Gives {(program, row): {"us": [...], "faults": [...]} or {"failure": why}}."""
    samples = {}
    live = []

    def prepare(pair):
        if pair in samples:
            return
        try:
            fleet[pair[0]].ask("prepare", pair[1])
            samples[pair] = {"us": [], "faults": []}
            live.append(pair)
        except Failure as failure:
            samples[pair] = {"failure": str(failure)}
            if not fleet[pair[0]].ready:  # it took along what it had prepared before
                for other in [other for other in live if other[0] == pair[0]]:
                    live.remove(other)
                    del samples[other]
                    prepare(other)

    def fail(pair, failure):
        """The pair has failed. Where its process has ended, a new one prepares the others of it."""
        samples[pair] = {"failure": str(failure)}
        live.remove(pair)
        program = fleet[pair[0]]
        while not program.ready and (left := [other for other in live if other[0] == pair[0]]):
            for other in left:
                try:
                    program.ask("prepare", other[1])
                except Failure as again:
                    samples[other] = {"failure": str(again)}
                    live.remove(other)
                    if not program.ready:
                        break

    for line in lines:
        prepare(line.ours)
        if line.ours in live:  # else there is nothing to compare
            for pair in line.theirs:
                prepare(pair)
    for number in range(options.rounds):
        for pair in live[:] if number % 2 == 0 else live[::-1]:
            if pair not in live:
                continue
            time.sleep(options.settle)
            try:
                answer = fleet[pair[0]].ask("round", pair[1], options.ms)
                samples[pair]["us"].append(answer["us"])
                samples[pair]["faults"].append(answer["faults"])
            except Failure as failure:
                fail(pair, failure)
    for pair in live:
        try:
            fleet[pair[0]].ask("release", pair[1])
        except Failure:
            pass
    if samples:
        print(f"  {row}: " + ", ".join(
            f"{p}:{r} " + (s.get("failure") or f"{statistics.median(s['us']):.4g} µs")
            for (p, r), s in samples.items()), file=sys.stderr, flush=True)
    return samples


def judge(line, samples):
    """Makes one line of the table from the samples of its row."""
    unit = "µs more" if line.added else "×" if line.theirs else "µs"
    out = {"row": line.name, "peer": line.peer, "must": line.must, "stretch": line.stretch,
           "unit": unit}
    if line.missing:
        return {**out, "verdict": "not run", "note": line.missing}
    ours = samples[line.ours]
    there = [pair for pair in line.theirs if pair in samples and "failure" not in samples[pair]]
    best = min(there, key=lambda pair: statistics.median(samples[pair]["us"]), default=None)
    if best:
        out.update(peer_row=":".join(best), peer_us=statistics.median(samples[best]["us"]))
    if "failure" in ours:
        return {**out, "verdict": "not run", "ours_failed": True,
                "note": f"{line.ours[0]}: {ours['failure']}"}
    out["ours_us"] = statistics.median(ours["us"])
    if not line.theirs:
        out.update(summary(ours["us"]))
        out["verdict"] = verdict(ours["us"], line.must, at_most=True)
        out["verdict_stretch"] = verdict(ours["us"], line.stretch, at_most=True)
        return out
    failures = [f"{p}:{r}: {samples[p, r]['failure']}" for p, r in line.theirs
                if "failure" in samples[p, r]]
    if not best or line.overlap and failures:
        return {**out, "verdict": "not run", "note": "; ".join(failures)}
    if line.overlap:
        return {**out, **overlap(line, samples)}
    theirs = samples[best]
    pairs = zip(theirs["us"], ours["us"])
    values = [o - t if line.added else t / o for t, o in pairs]
    out.update(summary(values))
    out["verdict"] = verdict(values, line.must, at_most=line.added)
    out["verdict_stretch"] = verdict(values, line.stretch, at_most=line.added)
    notes = failures
    if best[0] == "limit" and disturbed(values):
        for key in ("verdict", "verdict_stretch"):
            out[key] = out[key] and "undecided"
        notes.append("disturbed: the machine's limit was timed while something else ran")
    faults = statistics.median(theirs["faults"])
    if len(line.theirs) > 1:
        notes.append(f"the best was {':'.join(best)}")
    if faults >= 64:
        own = statistics.median(ours["faults"])
        notes.append(f"the peer faults in {faults:.0f} fresh pages a call, ours {own:.0f}")
    out["note"] = "; ".join(notes)
    return out


def overlap(line, samples):
    """The rest of a line whose peers are the serial form, its copies and its products.

    Nothing else that the serial form does counts as hidden: where copies and products alone take
    less than it, their sum stands for it.
    """
    serial, copies, products = (samples[pair]["us"] for pair in line.theirs)
    values = [(min(s, c + p) - o) / min(c, p)
              for o, s, c, p in zip(samples[line.ours]["us"], serial, copies, products)]
    medians = [statistics.median(us) for us in (serial, copies, products)]
    return {"unit": "of the shorter", "peer_us": medians[0], "peer_row": ":".join(line.theirs[0]),
            **summary(values), "verdict": verdict(values, line.must),
            "verdict_stretch": verdict(values, line.stretch),
            "note": f"copies alone {medians[1]:.4g} µs, products alone {medians[2]:.4g}"}


def run_once(command, env=None, timeout=120):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, **(env or {})})
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return done, ""


def queued(name, mode, fleet, options):
    line = {"row": name, "peer": "JAX", "must": None, "stretch": None}
    done, why = run_once([*fleet["once"].command, mode, str(QUEUED_CALLS)], fleet["once"].env, 300)
    if done is None or done.returncode != 0:
        return {**line, "verdict": "not run" if done is None else "missed", "ours_failed": True,
                "note": why or (done.stdout + done.stderr)[-200:].strip()}
    us, growth = done.stdout.split()
    notes = [f"{QUEUED_CALLS} calls queued without waiting: memory grows by "
             f"{int(growth) / 2**20:.1f} MiB"]
    if fleet["jax"].command:
        done, why = run_once([*fleet["jax"].command, "--queued", "1000"], None, 120)
        if done is None:
            notes.append(f"JAX with 1000: {why}")
        elif done.returncode != 0:
            last = done.stdout.split()[-1:] or ["0"]
            notes.append(f"JAX with 1000: died with status {done.returncode} after "
                         f"{last[0]} calls had been accepted")
        else:
            notes.append("JAX with 1000: finished")
    return {**line, "ours_us": float(us), "note": "; ".join(notes), "growth": int(growth),
            "verdict": "met" if int(growth) <= QUEUED_GROWTH_BOUND else "missed"}


def whole_processes(sides, rounds):
    """The µs of each program of `sides` from its start to its end, in turns, as one list a program;
    or why a program did not run."""
    times = [[] for _ in sides]
    for number in range(rounds + 1):  # the first one reads the files, and does not count
        for program, of_it in list(zip(sides, times))[::1 if number % 2 == 0 else -1]:
            if program.command is None:
                return None, f"{program.name}: not installed"
            start = time.perf_counter()
            done, why = run_once([*program.command, "--first"], program.env)
            seconds = time.perf_counter() - start
            if done is None or done.returncode != 0:
                why = why or (done.stdout + done.stderr)[-200:].strip()
                return None, f"{program.name}: {why}"
            if number > 0:
                of_it.append(seconds * 1e6)
    return times, ""


def first_result(fleet, options):
    """Whole processes, from their start to their end, with a verified result between."""
    must, stretch = FIRST_RESULT
    line = {"row": "first_result", "peer": "JAX, a new Python", "must": must, "stretch": stretch,
            "unit": "×"}
    times, why = whole_processes([fleet["once"], fleet["jax"]], options.rounds)
    if times is None:
        return {**line, "verdict": "not run", "ours_failed": why.startswith("once:"), "note": why}
    ours, theirs = times
    ratios = [t / o for t, o in zip(theirs, ours)]
    return {**line, "ours_us": statistics.median(ours), "peer_us": statistics.median(theirs),
            **summary(ratios), "verdict": verdict(ratios, must),
            "verdict_stretch": verdict(ratios, stretch),
            "note": "a small program, from its start to its end"}


def first_result_time(fleet, options):
    must, stretch = FIRST_RESULT_US
    line = {"row": "first_result_time", "peer": "a bound", "must": must, "stretch": stretch,
            "unit": "µs"}
    times, why = whole_processes([fleet["once"]], options.rounds)
    if times is None:
        return {**line, "verdict": "not run", "ours_failed": why.startswith("once:"), "note": why}
    ours = times[0]
    return {**line, "ours_us": statistics.median(ours), **summary(ours),
            "verdict": verdict(ours, must, at_most=True),
            "verdict_stretch": verdict(ours, stretch, at_most=True)}


def replicated(fleet, options):
    line = {"row": "replicated_argument", "peer": "JAX", "must": None, "stretch": None}
    done, why = run_once([*fleet["once"].command, "--replicated"], fleet["once"].env)
    if done is None or done.returncode != 0:
        return {**line, "verdict": "not run" if done is None else "missed", "ours_failed": True,
                "note": why or (done.stdout + done.stderr)[-200:].strip()}
    ours = int(done.stdout)
    note = f"64 MiB a device on 8 devices of one space takes {ours / 2**20:.1f} MiB"
    if fleet["jax"].command:
        done, why = run_once([*fleet["jax"].command, "--replicated"])
        if done is not None and done.returncode == 0:
            note += f"; in JAX {int(done.stdout) / 2**20:.1f} MiB"
        else:
            note += "; JAX not run"
    return {**line, "note": note, "bytes": ours,
            "verdict": "met" if ours <= REPLICATED_BYTES * REPLICATED_SLACK else "missed"}


def layer_memory(fleet, options):
    return peak_memory(fleet, "transformer_memory", "shmap_layer", "--transformer-memory",
                       LAYER_MEMORY)


def layer_grad_memory(fleet, options):
    return peak_memory(fleet, "transformer_grad_memory", "shmap_grad", "--transformer-grad-memory",
                       LAYER_GRAD_MEMORY)


def peak_memory(fleet, row, program, of_jax, goals):
    must, stretch = goals
    line = {"row": row, "peer": "JAX's report", "must": None, "stretch": None}
    ours, why = run_once([fleet[program].command[0], "--memory"], fleet[program].env)
    if ours is None or ours.returncode != 0:
        return {**line, "verdict": "not run", "ours_failed": True,
                "note": why or (ours.stdout + ours.stderr)[-200:]}
    if not fleet["jax"].command:
        return {**line, "verdict": "not run", "note": "jax: not installed"}
    theirs, why = run_once([*fleet["jax"].command, of_jax])
    if theirs is None or theirs.returncode != 0:
        return {**line, "verdict": "not run", "note": why or (theirs.stdout + theirs.stderr)[-200:]}
    share = int(ours.stdout) / int(theirs.stdout)
    judge_ = lambda bound: "met" if share <= bound else "missed"  # noqa: E731
    return {**line, "verdict": judge_(must), "verdict_stretch": judge_(stretch),
            "note": f"{int(ours.stdout) / 2**20:.1f} MiB on all devices, JAX "
                    f"{int(theirs.stdout) / 2**20:.1f}: {share:.2f} of it; must ≤ {must}, "
                    f"stretch ≤ {stretch}"}


def cells(line):
    ratio = ""
    if "median" in line:
        ratio = (f"{number(line['median'])} {line['unit']} "
                 f"[{number(line['low'])}, {number(line['high'])}]")
    sign = "≤ " if line.get("unit", "").startswith("µs") else "≥ "
    bound = lambda v: "" if v is None else sign + number(v)  # noqa: E731
    verdicts = line.get("verdict", "")
    return [line["row"], number(line.get("ours_us")), line["peer"], number(line.get("peer_us")),
            ratio, bound(line["must"]), verdicts, bound(line["stretch"]),
            line.get("verdict_stretch", ""), line.get("note", "")]


HEADER = ["row", "ours µs", "peer", "peer µs", "ratio [95 %]", "must", "verdict", "stretch",
          "verdict", "note"]


def text_table(lines):
    rows = [HEADER] + [cells(line) for line in lines]
    widths = [max(len(r[c]) for r in rows) for c in range(len(HEADER))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(r, widths)).rstrip() for r in rows)


def markdown_table(lines):
    rows = [cells(line) for line in lines]
    out = ["| " + " | ".join(HEADER) + " |", "|" + " --- |" * len(HEADER)]
    out += ["| " + " | ".join(cell.replace("|", "\\|") for cell in r) + " |" for r in rows]
    return "\n".join(out)


def machine():
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as f:
            model = next(line.split(":", 1)[1].strip() for line in f if "model name" in line)
    except (OSError, StopIteration):
        pass
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(),
            "date": datetime.date.today().isoformat()}


def start_all(programs_, end):
    """Starts programs that take seconds to be ready side by side."""
    for program in programs_:
        program.deadline = end + 20
        try:
            program.launch()
        except Failure:
            pass  # the rows that need it say so
    for program in programs_:
        try:
            program.start()
        except Failure:
            pass


def replace_text(path, text):
    """The file has the old text or the new one, whenever this process ends."""
    draft = pathlib.Path(f"{path}.draft")
    draft.write_text(text)
    draft.replace(path)


def write_results(options, about, judged, samples):
    """The files that were asked for, with the rows that there are so far."""
    if options.json:
        replace_text(options.json, json.dumps({"about": about, "lines": judged, "samples": samples},
                                              indent=1))
    if options.markdown:
        versions = "; ".join(
            f"{name}: " + ", ".join(f"{k} {v}" for k, v in found.items())
            for name, found in about["versions"].items())
        replace_text(options.markdown,
                     f"{about['cpu']}, {about['cores']} cores, {about['system']}, {about['date']}; "
                     f"{options.rounds} rounds of {options.ms:g} ms.\n\n{markdown_table(judged)}\n\n"
                     f"Versions: {versions}.\n")


def status_of(judged):
    """1 if a result was wrong or a program of ours did not run, whatever the peers did."""
    return 1 if any("#wrong" in line.get("note", "") or line.get("ours_failed") for line in judged) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with bin/")
    parser.add_argument("--rows", help="comma-separated names, in which * is any text")
    parser.add_argument("--gpu", action="store_true", help="the rows on one GPU, in place of CPUs'")
    parser.add_argument("--rounds", type=rounds, default=15)
    parser.add_argument("--ms", type=float, help="milliseconds a round: 100, on a GPU 15")
    parser.add_argument("--seconds", type=float, default=math.inf,
                        help="start no row after so long, and wait for no answer much longer")
    parser.add_argument("--quick", action="store_true", help="5 rounds of 30 ms: no verdicts")
    parser.add_argument("--json", help="write every sample to this file, after every row")
    parser.add_argument("--markdown", help="write the table as Markdown to this file, likewise")
    parser.add_argument("--history", default=str(history.DEFAULT), help="the file of earlier figures, "
                        "by kind of machine, or none")
    parser.add_argument("--jax-python", help="a Python with the jax of requirements.txt")
    parser.add_argument("--torch-python", help="a Python with the torch of requirements.txt")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.ms = min(options.rounds, 5), min(options.ms or 30.0, 30.0)
    options.ms = options.ms or (15 if options.gpu else 100)
    options.settle = GPU_SETTLE_SECONDS if options.gpu else SETTLE_SECONDS
    end = time.monotonic() + options.seconds

    table = gpu_comparisons() if options.gpu else comparisons()
    single = {} if options.gpu else {"first_result": first_result, "first_result_time": first_result_time,
              "queued_calls": functools.partial(queued, "queued_calls", "--queued"),
              "queued_jit_calls": functools.partial(queued, "queued_jit_calls", "--queued-jit"),
              "replicated_argument": replicated,
              "transformer_memory": layer_memory, "transformer_grad_memory": layer_grad_memory}
    names = list(dict.fromkeys(line.name for line in table)) + list(single)
    chosen = names
    if options.rows:
        wanted = options.rows.split(",")
        chosen = [n for n in names if any(fnmatch.fnmatchcase(n, w) for w in wanted)]
        unknown = [w for w in wanted if not fnmatch.filter(names, w)]
        if unknown:
            sys.exit(f"no row {', '.join(unknown)}; there are {', '.join(names)}")

    if options.gpu:  # time on a GPU is short: first what has a bound to keep
        bound = {line.name for line in table if line.must is not None}
        chosen.sort(key=lambda name: name not in bound)

    fleet = gpu_programs(options) if options.gpu else programs(options)
    needed = {pair[0] for line in table if line.name in chosen
              for pair in [line.ours, *line.theirs] if not line.missing}
    if options.gpu:
        start_all([fleet[name] for name in needed], end)
    if "openblas" in needed and shutil.which(fleet["openblas"].command[0]):
        fleet["openblas"].command[1] = tuned_openblas(fleet["openblas"].command[0])
    load_before = os.getloadavg()[0]
    judged, everything = [], {}
    about = lambda: {  # noqa: E731  versions come as programs start
        **machine(), "rounds": options.rounds, "milliseconds": options.ms,
        "load_before": load_before,
        "versions": {p.name: p.versions for p in fleet.values() if p.versions}}
    try:
        for name in chosen:
            write_results(options, about(), judged, everything)
            if name in single:
                try:
                    judged.append(single[name](fleet, options))
                except (ValueError, OSError) as error:  # what the program printed made no sense
                    judged.append({"row": name, "peer": "JAX", "must": None, "stretch": None,
                                   "verdict": "not run", "note": str(error)})
                continue
            lines = [line for line in table if line.name == name]
            if time.monotonic() > end:
                lines = [dataclasses.replace(
                    line, missing=line.missing or "the time allowed was over") for line in lines]
            samples = measure(name, [line for line in lines if not line.missing], fleet, options)
            everything[name] = {":".join(pair): s for pair, s in samples.items()}
            judged += [judge(line, samples) for line in lines]
    finally:
        write_results(options, about(), judged, everything)  # programs may take their time to stop
        for program in fleet.values():
            program.stop()

    print(text_table(judged))
    print("; ".join(f"{k}: {v}" for k, v in about().items()))
    if options.history != "none" and not options.gpu:
        print(history.compare(options.history, about(), judged))
    return status_of(judged)


if __name__ == "__main__":
    sys.exit(main())
