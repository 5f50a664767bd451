"""The rules by which docs/claims.md judges, on accuracies in percent. Nothing here reads a file."""

import math

MARGIN = {'cifar10': 0.5, 'cifar100': 1.0, 'ml-1m': 0.5}
NARROW_MARGIN = 0.3  # claims 6 and 9
LEAST_NCF = 65.0      # HR@10 of fp32 below which claim 13 decides nothing
FAR_BELOW = 20.0     # points below fp32's mean at which a run counts as diverged
MOST_SEEDS = 4
WIDTH = 1.7          # of the interval around a difference, in its standard errors

NO_RUN = 'no run yet'
NO_WORSE = 'no worse'
WORSE = 'worse'
MORE = 'needs another seed'
UNDECIDED = 'not decided'
HOLDS = 'holds'
FAILS = 'does not hold'
OPEN = 'open'


def mean(values):
    return sum(values) / len(values)


def deviation(values):
    middle = mean(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1))


def diverged(losses_finite, last, fp32_last):
    """A loss that was not finite, or a last epoch over 20 points below the mean of fp32's last epochs (None where
    there is none yet)."""
    return not losses_finite or (fp32_last is not None and last < fp32_last - FAR_BELOW)


def pooled(cells):
    """The deviation within cells, weighted by their degrees of freedom; cells: lists of accuracies, diverged runs
    left out. None: unknown."""
    freedom = sum(len(cell) - 1 for cell in cells if len(cell) > 1)
    if freedom == 0:
        return None
    return math.sqrt(sum((len(cell) - 1) * deviation(cell) ** 2 for cell in cells if len(cell) > 1) / freedom)


def half_width(s, n):
    return WIDTH * s * math.sqrt(2 / n)


def compare(ours, reference, s, margin, planned=2):
    """(verdict, d, h) of whether `ours` is no worse than `reference`; lists of accuracies, a value a seed, diverged
    runs with them.

    Before both have `planned` seeds nothing is decided. Where they have different numbers of seeds the smaller counts.
    """
    if not ours or not reference:
        return NO_RUN, None, None
    d = mean(ours) - mean(reference)
    n = min(len(ours), len(reference))
    if s is None:
        return MORE, d, None
    h = half_width(s, n)
    if n < planned:
        return MORE, d, h
    if d - h > -margin:
        return NO_WORSE, d, h
    if d + h < -margin:
        return WORSE, d, h
    return (MORE if n < MOST_SEEDS else UNDECIDED), d, h


def all_of(verdicts, wanted):
    """A claim that needs every comparison to come out as wanted: [(verdict, wanted verdict)]."""
    pairs = list(zip(verdicts, wanted))
    if all(verdict == NO_RUN for verdict, _ in pairs):
        return NO_RUN
    if all(verdict == want for verdict, want in pairs):
        return HOLDS
    if any(verdict in (NO_WORSE, WORSE) and verdict != want for verdict, want in pairs):
        return FAILS
    if any(verdict in (NO_RUN, MORE) for verdict, _ in pairs):
        return OPEN
    return UNDECIDED


def at_least(outcomes, wanted):
    """A claim that needs `wanted` of the settings; outcomes: HOLDS, FAILS, UNDECIDED, OPEN or NO_RUN of each."""
    if all(outcome == NO_RUN for outcome in outcomes):
        return NO_RUN
    holds = outcomes.count(HOLDS)
    if holds >= wanted:
        return HOLDS
    if len(outcomes) - outcomes.count(FAILS) < wanted:
        return FAILS
    return OPEN if any(outcome in (OPEN, NO_RUN) for outcome in outcomes) else UNDECIDED


def twice_its_error(differences):
    """(mean, standard error, verdict) of differences, one a cell: above two standard errors of their mean?"""
    middle = mean(differences)
    error = deviation(differences) / math.sqrt(len(differences))
    if middle > 2 * error:
        return middle, error, HOLDS
    return middle, error, FAILS if middle <= 0 else UNDECIDED
