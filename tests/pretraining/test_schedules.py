import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.pretraining.schedules import SCHEDULES, learning_rate_factor


def rates(steps, warmup_steps, schedule="linear"):
    return [
        learning_rate_factor(
            (k + 1) / steps, schedule=schedule, warmup_fraction=warmup_steps / steps
        )
        for k in range(steps)
    ]


def test_six_steps_with_four_of_warm_up():
    assert rates(6, 4) == pytest.approx([0.25, 0.5, 0.75, 1.0, 0.5, 0.0])


def test_first_step_moves_and_only_the_last_may_stand_still():
    assert all(rate > 0 for rate in rates(100, 10)[:-1])


@given(
    st.sampled_from(SCHEDULES), st.floats(0, 0.99), st.floats(0, 1), st.floats(0.0, 3.0)
)  # fmt: skip
def test_factor_is_a_share_and_stays_after_the_end(schedule, warmup, final, progress):
    options = {"schedule": schedule, "warmup_fraction": warmup, "final_fraction": final}
    factor = learning_rate_factor(progress, **options)
    assert 0.0 <= factor <= 1.0 + 1e-12
    if progress > 1:
        assert factor == learning_rate_factor(1.0, **options)


def test_constant_and_cosine_end_where_they_say():
    options = {"warmup_fraction": 0.1, "final_fraction": 0.2}
    assert learning_rate_factor(1.0, schedule="cosine", **options) == pytest.approx(0.2)
    assert learning_rate_factor(0.55, schedule="cosine", **options) == pytest.approx(0.6)
    assert learning_rate_factor(1.0, schedule="constant", **options) == 1.0
