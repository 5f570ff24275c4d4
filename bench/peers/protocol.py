"""The line protocol of the peers: one request a line on standard input, one JSON object a line on
standard output. `bench/support/rows.h` is the same for C++, and describes it."""

import json
import resource
import statistics
import sys
import time

BATCH_SECONDS = 2e-3
WARM_SECONDS = 20e-3
WARM_CALLS = 3  # after the first one, which compiles; the second may capture


class Row:
    """Data made, `call` runs and waits for one call, `check` names what is wrong or returns ''.

    With `time_batch(n)` the row times a batch of n calls itself (seconds), for instance where the
    loop must not pay for a Python call. `max_calls` bounds the calls of one round; `parts` is what
    a call's time is divided by. `about()`, after the first call, is what the answer to `prepare`
    tells beside.
    """

    def __init__(self, call=None, check=None, time_batch=None, max_calls=None, parts=1, about=None):
        self.call = call
        self.check = check
        self.time_batch = time_batch or self._time_batch
        self.max_calls = max_calls
        self.parts = parts
        self.about = about
        self.batch = 1

    def _time_batch(self, n):
        call = self.call
        start = time.perf_counter()
        for _ in range(n):
            call()
        return time.perf_counter() - start

    def warm_up(self):
        """Warms up and picks how many calls a batch has."""
        spent = self.time_batch(1)
        if self.max_calls == 1:
            return
        calls = 0
        while calls < WARM_CALLS or spent < WARM_SECONDS:
            spent += self.time_batch(1)
            calls += 1
        n = 1
        while n < 1 << 20 and (seconds := self.time_batch(n)) < BATCH_SECONDS:
            n = max(2 * n, int(0.5 * n * BATCH_SECONDS / max(seconds, 1e-7)))
        self.batch = n

    def round(self, milliseconds):
        """Times calls for about `milliseconds`: the median over batches of µs a call."""
        times = []
        calls = 0
        spent = 0.0
        faults = page_faults()
        while True:
            seconds = self.time_batch(self.batch)
            times.append(seconds / self.batch)
            spent += seconds
            calls += self.batch
            if spent >= milliseconds * 1e-3:
                break
            if self.max_calls is not None and calls >= self.max_calls:
                break
        faults = (page_faults() - faults) / calls
        return {"us": statistics.median(times) / self.parts * 1e6, "calls": calls, "faults": faults}


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def reply(**fields):
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def serve(name, versions, factories):
    """Answers requests until `quit` or the end of input; returns the process's exit status."""
    live = {}
    wrong = False
    reply(ready=name, versions=versions, rows=sorted(factories))
    for line in sys.stdin:
        words = line.split()
        if not words:
            continue
        verb, row = words[0], words[1] if len(words) > 1 else ""
        if verb == "quit":
            break
        try:
            if verb == "prepare":
                if row not in live:
                    live[row] = factories[row](*words[2:])
                work = live[row]
                if work.call:
                    work.call()
                work.warm_up()
                fault = work.check()
                extra = {"about": work.about()} if work.about else {}
            elif verb == "round":
                extra = live[row].round(float(words[2]))
                fault = live[row].check()
            elif verb == "release":
                live.pop(row, None)
                fault, extra = "", {}
            else:
                raise ValueError(f"unknown request {line.strip()!r}")
            if fault:
                wrong = True
                print(f"#wrong {name} {row}: {fault}", file=sys.stderr, flush=True)
                reply(row=row, wrong=fault)
            else:
                reply(row=row, **extra)
        except Exception as error:  # the process serves other rows; the caller sees the message
            reply(row=row, error=f"{type(error).__name__}: {error}"[:400])
    return 1 if wrong else 0
