"""Paired differences over seeds -> intervals, tests, corrections, and what more seeds would show.

Arrays in, numbers out; the tests and corrections are those of scipy and statsmodels. The unit of
replication is the pretraining seed: fine-tuning seeds are averaged before anything here is called.
The t interval decides at every number of seeds (percentile bootstraps over 3, 5, 10 seeds cover
about .75, .84, .90 where .95 is claimed: tests/study/test_coverage.py); the bootstrap over seeds
and examples describes. A floor for the deviation keeps a few differences that agree by luck, or by
the grain of a score, from being taken for certainty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

FLOOR_SHARE = 0.5  # of the median deviation over arms
APART_SHARE = 0.1  # of the median deviation that the same scores have as if they were not paired
_MOST_SEEDS = 10_000
_CELLS = 1_000_000  # of one block of weights (resamples, examples)


@dataclass(frozen=True)
class Paired:
    """Mean of n paired differences. `deviation` is the sample one (n - 1), or the floor where that
    is more; interval and p are undefined (None) for a single pair, never 0."""

    n: int
    mean: float
    deviation: float | None
    own_deviation: float | None
    low: float | None
    high: float | None
    p: float | None


def paired(differences: np.ndarray, *, level: float = 0.95, floor: float = 0.0) -> Paired:
    """Two-sided paired t test and interval of differences (n,), one a seed.

    Raises:
        ValueError: no difference, or one that is not finite.
    """
    differences = _checked(differences)
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return Paired(n, mean, None, None, None, None, None)
    own = float(differences.std(ddof=1))
    deviation = max(own, floor)
    error = deviation / n**0.5
    if error == 0:  # no spread and no floor: nothing to measure a difference by
        return Paired(n, mean, deviation, own, mean, mean, 1.0 if mean == 0 else None)
    half = float(stats.t.ppf(0.5 + level / 2, n - 1)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, n - 1))
    return Paired(n, mean, deviation, own, mean - half, mean + half, p)


def equivalence_p(differences: np.ndarray, margin: float, *, floor: float = 0.0) -> float | None:
    """p of the two one-sided t tests of |difference| >= margin (Schuirmann 1987): the larger one.

    None where it is undefined (a single pair, or no spread at all).
    """
    if margin <= 0:
        raise ValueError(f"margin={margin} must be greater than 0")
    found = paired(differences, floor=floor)
    if found.deviation is None or found.deviation == 0:
        return None
    error = found.deviation / found.n**0.5
    above = stats.t.sf((found.mean + margin) / error, found.n - 1)  # H0: mean <= -margin
    below = stats.t.cdf((found.mean - margin) / error, found.n - 1)  # H0: mean >= margin
    return float(max(above, below))


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Holm-adjusted p (Holm 1979) of each name; one that is undefined stays so and counts as 1."""
    names = list(p_values)
    if not names:
        return {}
    raw = [1.0 if p_values[name] is None else p_values[name] for name in names]
    adjusted = multipletests(raw, method="holm")[1]
    return {
        name: None if p_values[name] is None else float(value)
        for name, value in zip(names, adjusted, strict=True)
    }


def alpha_of_look(look: int, *, total: float = 0.05) -> float:
    """What look 1, 2, ... at a growing study may spend: total / 2^look, in all less than total."""
    if look < 1:
        raise ValueError(f"look={look}: the first look is number 1")
    return float(total / 2**look)


def deviation_floor(
    differences: Mapping[str, np.ndarray],
    *,
    share: float = FLOOR_SHARE,
    apart: Sequence[float] = (),
) -> float:
    """A share of the median deviation over two or more arms of a study, or, where it is larger, a
    smaller share of the median of `apart`: their deviations if nothing were paired.

    The median, since an arm that fails has a spread of its own that says nothing about the others.
    The second holds for a single arm too, and where all arms agree by luck at once.
    """
    spreads = [float(np.std(d, ddof=1)) for d in differences.values() if len(d) > 1]
    among = share * float(np.median(spreads)) if len(spreads) > 1 else 0.0
    return max(among, APART_SHARE * float(np.median(apart)) if len(apart) else 0.0)


def detectable_effect(
    deviation: float, n: int, *, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Smallest difference that n pairs of this deviation show with this power; None below 2."""
    if n < 2:
        return None
    return float(deviation * TTestPower().solve_power(nobs=n, alpha=alpha, power=power))


def seeds_for_difference(
    effect: float, deviation: float, *, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """Pairs with which a difference of `effect` would be shown; None beyond what anyone runs."""
    if effect == 0:
        return None
    return _smallest(
        lambda n: float(
            TTestPower().power(abs(effect) / deviation, n, alpha) if deviation else 1.0
        ),
        power,
    )


def seeds_for_equivalence(
    effect: float, deviation: float, margin: float, *, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """Pairs with which a difference of `effect` would be shown to lie within the margin.

    By the distribution of the mean with the deviation known, one pair more for its being
    estimated; None where the effect is not inside the margin.
    """
    if abs(effect) >= margin:
        return None

    def power_of(n: int) -> float:
        error = deviation / n**0.5
        if error == 0:
            return 1.0
        quantile = float(stats.t.ppf(1 - alpha, n - 1))
        upper = (margin - effect) / error - quantile
        lower = (-margin - effect) / error + quantile
        return float(max(0.0, stats.norm.cdf(upper) - stats.norm.cdf(lower)))

    found = _smallest(power_of, power)
    return None if found is None else found + 1


@dataclass(frozen=True)
class Pairing:
    """What pairing by seed bought: deviations of the difference, as paired and as if it were not.

    `gain` is unpaired variance over paired variance: the factor by which pairing saves seeds.
    """

    paired: float
    unpaired: float
    correlation: float | None
    gain: float | None


def pairing(arm: np.ndarray, baseline: np.ndarray) -> Pairing | None:
    """Of scores (n,) with the same seeds in the same order; None below two seeds."""
    arm, baseline = _checked(arm), _checked(baseline)
    if len(arm) != len(baseline):
        raise ValueError(f"{len(arm)} scores against {len(baseline)}: pairs need both")
    if len(arm) < 2:
        return None
    together = float(np.std(arm - baseline, ddof=1))
    apart = float((arm.var(ddof=1) + baseline.var(ddof=1)) ** 0.5)
    both_vary = arm.std() > 0 and baseline.std() > 0
    return Pairing(
        together,
        apart,
        float(np.corrcoef(arm, baseline)[0, 1]) if both_vary else None,
        (apart / together) ** 2 if together > 0 else None,
    )


def bootstrap_interval(
    per_example: np.ndarray,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_resamples: int = 1000,
) -> tuple[float, float]:
    """Interval of the mean of paired differences (seeds, examples), both resampled."""
    examples = per_example.shape[1]
    return bootstrap_of(
        lambda weights: weights @ per_example.T / examples,
        (examples,),
        rng=rng,
        level=level,
        num_resamples=num_resamples,
    )


def bootstrap_of(
    differences: Callable[[np.ndarray], np.ndarray],
    sizes: Sequence[int],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    num_resamples: int = 1000,
) -> tuple[float, float]:
    """Percentile interval of the mean over k seeds, seeds and examples resampled (description).

    Seeds are drawn with replacement and examples once for all seeds of a resample, as in the
    multi-bootstrap (Sellam et al. 2022). The seeds' part is widened by sqrt(k / (k - 1)), by which
    resampling k seeds understates their variance. Of one seed only the examples are resampled.

    Args:
        differences: how often each example counts (b, n) -> a paired difference a seed, (b, k).
        sizes: of the sets of examples, each resampled within itself; they add up to n.
    """
    own = differences(np.ones((1, sum(sizes))))[0]
    seeds = len(own)
    widen = (seeds / (seeds - 1)) ** 0.5 - 1 if seeds > 1 else 0.0
    shares = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=num_resamples) / seeds
    block = max(_CELLS // sum(sizes), 1)
    means = np.empty(num_resamples)
    for begin in range(0, num_resamples, block):
        here = shares[begin : begin + block]
        weights = np.concatenate([_counts(len(here), size, rng) for size in sizes], axis=1)
        found = differences(weights) + widen * (own - own.mean())
        means[begin : begin + block] = (here * found).sum(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _counts(resamples: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """How often each of `size` examples is drawn in each resample, (resamples, size)."""
    chosen = rng.integers(size, size=(resamples, size)) + size * np.arange(resamples)[:, None]
    counts = np.bincount(chosen.ravel(), minlength=resamples * size)
    return counts.reshape(resamples, size).astype(np.float64)


def mean_over_seeds(scores: Sequence[Sequence[float]]) -> np.ndarray:
    """Fine-tuning seeds inside each pretraining seed -> one score a pretraining seed, (seeds,)."""
    return np.array([float(np.mean(inside)) for inside in scores])


def _smallest(power_of: object, power: float) -> int | None:
    """Smallest n >= 2 whose power is enough; it grows with n."""
    assert callable(power_of)
    low, high = 2, 2
    while power_of(high) < power:
        low, high = high + 1, high * 2
        if high > _MOST_SEEDS:
            return None
    while low < high:
        middle = (low + high) // 2
        if power_of(middle) >= power:
            high = middle
        else:
            low = middle + 1
    return high


def _checked(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"finite numbers (n,), one a seed, are wanted, not {values!r}")
    return values
