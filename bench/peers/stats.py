"""Medians with distribution-free intervals, and verdicts."""

import math
import statistics

PAIRS_FOR_A_VERDICT = 15
LIMIT_DISTURBED = 4 / 3


def interval(values, level=0.95):
    """The interval between two order statistics that holds the median with at least `level`, or
    None where there are too few values for one."""
    values = sorted(values)
    n = len(values)
    best = None
    tail = 0.0
    for k in range(n // 2):  # P(the median lies below values[k]) = P(Bin(n, 1/2) <= k)
        tail += math.comb(n, k) / 2**n
        if 1 - 2 * tail < level:
            break
        best = (values[k], values[n - 1 - k])
    return best


def verdict(values, bound, at_most=False):
    """met, missed or undecided: does the median's interval lie on one side of the bound?"""
    if bound is None:
        return ""
    span = interval(values)
    if span is None or len(values) < PAIRS_FOR_A_VERDICT:
        return "undecided"
    low, high = span
    if at_most:
        return "met" if high <= bound else "missed" if low > bound else "undecided"
    return "met" if low >= bound else "missed" if high < bound else "undecided"


def disturbed(of_limit):
    """Whether something else took the machine while a limit of it was timed: nothing is much faster
    than its limit. `of_limit` has the limit's time over the row's, round for round; no verdict is
    taken from it where the limit took more than a third longer than the row."""
    return statistics.median(of_limit) > LIMIT_DISTURBED


def summary(values):
    span = interval(values) or (min(values), max(values))
    return {"median": statistics.median(values), "low": span[0], "high": span[1]}


def number(value):
    """Three digits, without an exponent for large ones; '' for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def rounds(text):
    """A number of rounds, as an option gives it."""
    if int(text) < 1:
        raise ValueError("no rounds")
    return int(text)
