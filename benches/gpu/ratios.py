"""Step times set against each other, with intervals. Pure arithmetic.
"""
import random
import statistics

ROUNDS = 2000


def of_steps(native, ours):
    """Each warm step of a run against the same step of torch's run of the same round: the
    same seed gives both the same steps, while a ratio of medians would compare two different ones."""
    begin = max(native["warm_from"], ours["warm_from"])
    return [b / a for a, b in zip(native["step_ms"][begin:], ours["step_ms"][begin:]) if a > 0]


def interval(rounds):
    """(median, low, high) of the step ratio: the median over the rounds of the median over a
    round's steps, and its 95 % bootstrap interval, rounds and the steps within them drawn again.
    None where there is nothing; low and high are None for fewer than 2 rounds."""
    rounds = [r for r in rounds if r]
    if not rounds:
        return None
    middle = statistics.median(statistics.median(r) for r in rounds)
    if len(rounds) < 2:
        return middle, None, None
    dice = random.Random(1)
    seen = sorted(statistics.median(statistics.median(dice.choices(steps, k=len(steps)))
                                    for steps in dice.choices(rounds, k=len(rounds))) for _ in range(ROUNDS))
    return middle, seen[int(0.025 * ROUNDS)], seen[int(0.975 * ROUNDS) - 1]


def of_rounds(native, ours, value):
    """The median over the rounds that both have of value(ours) / value(native), or None."""
    shares = [value(ours[r]) / value(native[r]) for r in ours if r in native and value(native[r])]
    return statistics.median(shares) if shares else None
