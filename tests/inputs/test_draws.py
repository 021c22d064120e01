"""Numbers of a batch: two of 32 bits out of each draw, further ones by hash."""

import numpy as np
from scipy.stats import chisquare

from ablate import rng
from ablate.inputs import draws
from ablate.inputs.draws import further, two_uniforms

KEY = rng.key(0, "draws")


def made(rows, lengths, width=11, epoch=0):
    return two_uniforms(KEY, np.array(rows), np.array(lengths), width=width, epoch=epoch)


def test_halves_put_together_are_the_draw():
    upper, lower = made([4], [11])
    bits = rng.bits(KEY, [4], 11, epoch=0, substream=0)[0]
    again = (upper * 2**32).astype(np.uint64) << np.uint64(32) | (lower * 2**32).astype(np.uint64)
    assert np.array_equal(again, bits)


def test_a_rows_numbers_do_not_depend_on_the_batch():
    parts = [made([r], [n]) for r, n in ((9, 11), (3, 2), (4, 7))]
    assert np.array_equal(made([9, 3, 4], [11, 2, 7]), np.concatenate(parts, axis=1))


def test_uniform_and_uncorrelated():
    upper, lower = made(np.arange(100), np.full(100, 1000), width=1000)
    first, second = (further(upper, lower, number) for number in (1, 2))
    numbers = [upper, lower, first, second]
    for k, part in enumerate(numbers):
        assert chisquare(np.bincount((part * 16).astype(int), minlength=16)).pvalue > 1e-6
        assert abs(np.corrcoef(part[1:], part[:-1])[0, 1]) < 5 / 100_000**0.5
        for other in numbers[:k]:
            assert abs(np.corrcoef(part, other)[0, 1]) < 5 / 100_000**0.5


def test_further_numbers_know_nothing_of_the_halves():
    """Also where both halves are known to lie in a small interval, as at a random replacement."""
    upper, lower = made(np.arange(2000), np.full(2000, 1000), width=1000)
    chosen = (upper < 0.15) & (lower >= 0.8) & (lower < 0.9)
    number = further(upper[chosen], lower[chosen], 1)
    assert len(number) == len(np.unique(number)) > 25_000
    assert chisquare(np.bincount((number * 30).astype(int), minlength=30)).pvalue > 1e-6
    for half in (upper, lower):
        assert abs(np.corrcoef(number, half[chosen])[0, 1]) < 5 / len(number) ** 0.5


def test_further_numbers_by_plain_integers():
    upper, lower = made([7], [3])
    for j, value in enumerate(further(upper, lower, 2)):
        bits = int(upper[j] * 2**32) << 32 | int(lower[j] * 2**32)
        bits = (bits + 2 * 0x9E3779B97F4A7C15) % 2**64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ (bits >> shift)) * factor % 2**64
        assert value == ((bits ^ (bits >> 31)) >> 11) * 2.0**-53


def test_compiled_loop_equals_plain_python():
    drawn = rng.bits(KEY, [0, 1, 2], 6, epoch=0, substream=0)
    lengths = np.array([6, 0, 3])
    assert np.array_equal(
        draws.halves(drawn, lengths), draws.compiled(draws.halves)(drawn, lengths)
    )
