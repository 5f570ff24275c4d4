#!/usr/bin/env python3
"""Runs the tests of one program of GoogleTest, bin/gpu_all_tests, on each kind of devices of a GPU.

Opening the driver takes a process seconds, one process after another. So the tests are divided among a few
processes, which each run many. A process that dies, or is silent for too long, fails the test that was
running, and its other tests go on in a new process. Results are noted in the log as they come.

A test belongs to the source that it is in: of tests/ops/sort_ops_test.cpp, on eight devices of one GPU, it is
one of sort_ops_test@cuda:0x8, the name that CTest has for the program of that source.

The last line of the output has the counts. The exit status is 0 where all tests passed or were skipped, 1 where
one failed or a process died, 2 where nothing failed and some were not run; 3 where the program's tests cannot be
listed.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOMS_THAT_COMMUNICATE = ("collectives", "overlap", "shard_map")
FIRST_TEST_SECONDS = 90  # of silence: the first test of a process opens the driver
SLOWEST = 15
TEXT_OF_A_TEST = 6000  # characters of it that the log keeps, at its beginning and at its end


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """A kind of devices, and which tests run on it: of which folders, or of which program."""

    name: str
    environment: dict
    rooms: tuple = ()
    program: str = ""
    gpus: int = 1

    def takes(self, test):
        return (not self.rooms or test.room in self.rooms) and self.program in ("", test.program)


KINDS = (
    Kind("cuda:0x8", {"SHMAP_DEVICES": "cuda:0x8"}),
    Kind("cuda:0x8/8", {"SHMAP_DEVICES": "cuda:0x8/8"}),
    Kind("cuda:0x8/8,staged", {"SHMAP_DEVICES": "cuda:0x8/8", "SHMAP_LINK": "staged"},
         rooms=ROOMS_THAT_COMMUNICATE),
    Kind("cuda:0x8,no_nvrtc", {"SHMAP_DEVICES": "cuda:0x8", "SHMAP_NVRTC_PATH": "/nonexistent"},
         program="jit_test"),
    Kind("cuda", {"SHMAP_DEVICES": "cuda"}, gpus=2),
    Kind("cuda,nccl", {"SHMAP_DEVICES": "cuda", "SHMAP_COMMUNICATOR": "nccl"},
         rooms=ROOMS_THAT_COMMUNICATE, gpus=2),
)


@dataclasses.dataclass(frozen=True)
class Test:
    name: str  # Suite.Name
    suite: str
    program: str  # of the source that it is in
    room: str  # the folder in tests/ of that source


class NoListing(Exception):
    """The program does not list its tests, or lists two of one name."""


def tests_of(program):
    """All tests of the program, in its order, but for those that are disabled."""
    with tempfile.TemporaryDirectory() as folder:
        listing = os.path.join(folder, "tests.json")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GTEST_")}
        try:
            process = subprocess.run([program, "--gtest_list_tests", f"--gtest_output=json:{listing}"],
                                     env=environment, capture_output=True, text=True, timeout=60)
            suites = json.loads(pathlib.Path(listing).read_text())["testsuites"]
        except subprocess.TimeoutExpired as late:
            raise NoListing(f"{program} --gtest_list_tests took more than {late.timeout} s") from late
        except (OSError, ValueError) as error:
            raise NoListing(f"{program} --gtest_list_tests: {error}") from error
        if process.returncode != 0:
            raise NoListing(f"{program} --gtest_list_tests ended with {process.returncode}: {process.stderr[-300:]}")
    tests, sources = [], {}
    for suite in suites:
        for entry in suite["testsuite"]:
            name, source = f"{suite['name']}.{entry['name']}", entry["file"]
            if name in sources:
                raise NoListing(f"{program} has two tests {name}, of {sources[name]} and of {source}")
            sources[name] = source
            place = re.search(r"(?:^|/)tests/(?:(.*)/)?(\w+)\.cpp$", source)
            if place is None:
                raise NoListing(f"{name} is of {source}, which is not in a folder named tests")
            if "DISABLED_" not in name:
                tests.append(Test(name, suite["name"], place[2], place[1] or ""))
    return tests


class Results:
    """The result of each test on each kind of devices, written to the log at once."""

    def __init__(self, log):
        self.log = log
        self.lock = threading.Lock()
        self.of_test = {}  # (kind's name, test) -> verdict
        self.seconds = []  # (seconds, kind's name, test's name)
        self.deaths = {}  # (kind's name, test after which a process died or None) -> how
        self.not_run = []  # (kind's name, test)

    def say(self, line, text=""):
        """With the lock held: a line of the log, and the text of a test that did not pass."""
        if len(text) > 2 * TEXT_OF_A_TEST:
            text = f"{text[:TEXT_OF_A_TEST]}\n(left out)\n{text[-TEXT_OF_A_TEST:]}"
        self.log.write(f"{line}\n{text}")
        self.log.flush()

    def note(self, kind, test, verdict, seconds=None, text=""):
        with self.lock:
            self.of_test[kind.name, test] = verdict
            line = f"{verdict} {test.program}@{kind.name} {test.name}"
            if seconds is not None:
                self.seconds.append((seconds, kind.name, test.name))
                line += f" ({seconds:.2f} s)"
            if verdict in ("passed", "skipped"):
                self.say(line)
            else:
                self.say(f"=== {line}", text)
                print(line, flush=True)

    def note_death(self, kind, after, how, text):
        with self.lock:
            self.deaths[kind.name, after] = how
            line = f"a process on {kind.name} {how}, " + (f"after {after.name}" if after else "before any test")
            self.say(f"=== {line}", text)
            print(line, flush=True)

    def note_not_run(self, kind, tests):
        with self.lock:
            for test in tests:
                self.not_run.append((kind.name, test))
                self.say(f"not run {test.program}@{kind.name} {test.name}")

    def count(self, *verdicts):
        return sum(verdict in verdicts for verdict in self.of_test.values())

    def failed_names(self):
        """One line for each X_test@kind with a failure: that name, and the failed tests as a filter."""
        names = {}
        for (kind, test), verdict in self.of_test.items():
            if verdict not in ("passed", "skipped"):
                names.setdefault(f"{test.program}@{kind}", []).append(test.name)
        for kind, after in self.deaths:
            if after is not None:
                names.setdefault(f"{after.program}@{kind}", []).append(after.name)
        return [f"{name} {':'.join(dict.fromkeys(tests))}" for name, tests in sorted(names.items())]


def how_it_ended(status):
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"died by {signal.Signals(-status).name}"
    except ValueError:
        return f"died by signal {-status}"


class Runner:
    def __init__(self, program, results, end, patience):
        self.program, self.results, self.end, self.patience = program, results, end, patience
        # The variables that CTest sets for these tests.
        self.variables = {"SHMAP_ATTENTION_KERNEL": "own",
                          "SHMAP_CACHE_DIR": str(program.parent.parent / "kernel_cache")}
        self.lock = threading.Lock()
        self.processes = set()  # that run
        signal.signal(signal.SIGTERM, self.terminate)

    def terminate(self, signum, frame):
        """SIGTERM also ends the processes, so that nothing is left on the GPU. The log has the results so far."""
        for process in list(self.processes):
            end_group(process)
        os._exit(128 + signum)

    def run(self, kind, tests):
        """All of them, in as many processes as it takes."""
        left = {test.name: test for test in tests}
        while left and time.monotonic() < self.end:
            before = len(left)
            self.run_process(kind, left)
            if len(left) == before:  # it would not get further the next time
                break
        self.results.note_not_run(kind, left.values())

    def run_process(self, kind, left):
        """Runs all tests of `left` in one process, and removes those with a result from `left`."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GTEST_")}
        environment.update(self.variables, **kind.environment)
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([self.program, "--gtest_filter=" + ":".join(left)], env=environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True, errors="replace", cwd=folder, start_new_session=True)
            lines = queue.Queue()

            def read():
                for line in process.stdout:
                    lines.put(line)
                lines.put(None)

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            with self.lock:
                self.processes.add(process)
            try:
                self.follow(kind, left, process, lines)
            finally:
                end_group(process)
                reader.join(5)
                with self.lock:
                    self.processes.remove(process)

    def follow(self, kind, left, process, lines):
        running, last, text, a_test_failed = None, None, [], False
        stopped = None
        while True:
            if time.monotonic() >= self.end:
                stopped = "time is over"
                break
            patience = max(self.patience, FIRST_TEST_SECONDS) if last is None else self.patience
            try:
                line = lines.get(timeout=max(0.0, min(patience, self.end - time.monotonic())))
            except queue.Empty:
                if time.monotonic() < self.end:
                    stopped = f"silent for {patience:g} s"
                    break
                continue
            if line is None:
                break
            # Output of a test may come before the mark on its line.
            mark = re.search(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([\w/]+\.[\w/]+)", line)
            if mark and mark[1] == "RUN" and mark[2] in left:
                running, text = left[mark[2]], []
            elif mark and running and mark[2] == running.name:
                verdict = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}.get(mark[1])
                took = re.search(r"\((\d+) ms\)", line)
                if verdict is None:
                    continue
                a_test_failed |= verdict == "failed"
                self.results.note(kind, running, verdict, int(took[1]) / 1000 if took else None, "".join(text))
                del left[running.name]
                last, running, text = running, None, []
            else:
                text.append(line)
        if stopped == "time is over":
            return  # what was running counts as not run
        # A child of a process that died may keep its output open and be silent.
        if stopped is None or process.poll() is not None:
            status = process.wait()
            how = how_it_ended(status)
        else:
            status, how = None, stopped
        if running is not None:
            self.results.note(kind, running, how, text="".join(text))
            del left[running.name]
        elif status != 0 and not (status == 1 and a_test_failed):
            self.results.note_death(kind, last, how, "".join(text))


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def divide(kind, tests, parts):
    """The kind's tests in so many parts of about one number; a suite stays together, large ones come first."""
    suites = {}
    for test in tests:
        suites.setdefault((test.program, test.suite), []).append(test)
    batches = [[] for _ in range(min(parts, len(suites)))]
    for suite in sorted(suites.values(), key=len, reverse=True):
        min(batches, key=len).extend(suite)
    return [(kind, batch) for batch in batches]


def run_all(chosen, arguments, results, end):
    """Each kind has its share of the processes, by the number of its tests, and at least one."""
    total = sum(len(tests) for tests in chosen.values())
    batches = []
    for kind, tests in chosen.items():
        batches += divide(kind, tests, max(1, round(arguments.processes * len(tests) / total)))
    batches.sort(key=lambda batch: len(batch[1]), reverse=True)
    runner = Runner(arguments.program, results, end, arguments.patience)
    with concurrent.futures.ThreadPoolExecutor(arguments.processes) as pool:
        for done in [pool.submit(runner.run, *batch) for batch in batches]:
            done.result()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=lambda name: pathlib.Path(name).absolute())
    parser.add_argument("--check", action="store_true", help="only check that no two tests have one name")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."),
                        help="folder: tests.log is continued there")
    parser.add_argument("--failed", type=pathlib.Path,
                        help="file that is continued by 'X_test@kind TEST:TEST' for what failed")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--gpus", type=int, default=1, help="the number of GPUs of the machine")
    parser.add_argument("--patience", type=float, default=30, help="seconds of silence in which a test hangs")
    parser.add_argument("--tests", default="", metavar="REGEX", help="run the tests whose X_test@kind or Suite.Name matches")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    end = time.monotonic() + arguments.seconds
    try:
        tests = tests_of(arguments.program)
    except NoListing as why:
        print(f"run_tests: {why}", file=sys.stderr)
        return 3
    if arguments.check:
        print(f"run_tests: {len(tests)} tests of different names")
        return 0
    wanted = re.compile(arguments.tests)
    chosen = {}
    for kind in KINDS:
        mine = [test for test in tests if kind.takes(test)
                and (wanted.search(f"{test.program}@{kind.name}") or wanted.search(test.name))]
        if mine and kind.gpus <= arguments.gpus:
            chosen[kind] = mine
    with open(arguments.out / "tests.log", "a", encoding="utf-8") as log:
        results = Results(log)
        if chosen:
            run_all(chosen, arguments, results, end)
        failed = len(results.of_test) - results.count("passed", "skipped")
        if arguments.failed:
            with open(arguments.failed, "a", encoding="utf-8") as names:
                names.writelines(f"{name}\n" for name in results.failed_names())
        for kind_name, test in results.not_run:
            print(f"not run {test.program}@{kind_name} {test.name}")
        for seconds, kind_name, name in sorted(results.seconds, reverse=True)[:SLOWEST]:
            print(f"{seconds:8.2f} s  {kind_name}  {name}")
        all_tests = sum(len(mine) for mine in chosen.values())
        line = (f"{results.count('passed')} passed, {results.count('skipped')} skipped, {failed} failed, "
                f"{len(results.not_run)} not run of {all_tests}; {len(results.deaths)} processes died between tests")
        results.say(line)
        print(line)
    if failed or results.deaths:
        return 1
    return 2 if results.not_run else 0


if __name__ == "__main__":
    sys.exit(main())
