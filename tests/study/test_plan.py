"""A plan says what each arm moves and costs; hundreds of arms open corpus and tokenizer once."""

import pytest

from ablate.run import arm as arms
from ablate.study import plan
from ablate.study.design import from_dict
from ablate.study.guard import compose_arms
from ablate.study.states import State, StudyFolder

COMMON = [
    "budget.clock=steps", "budget.amount=40", "evaluation=none", "tracking=none",
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "trainer.threads=1",
    "trainer.progress_bar=false",
]  # fmt: skip
BASE = {
    "question": "Which?", "seeds": 5, "primary": "val/token_mask/loss", "margin": 0.1,
    "higher_is_better": False,
    "common": COMMON,
}  # fmt: skip
FACTORS = {
    "rate": {f"m{r}": [f"masking.mask_rate=0.{r}"] for r in range(10, 60, 5)},
    "speed": {f"l{r}": [f"optimizer.learning_rate=0.00{r}"] for r in range(1, 6)},
    "budget": {f"t{t}": [f"budget.amount={t}00"] for t in range(1, 5)},
}


@pytest.fixture
def prepared(monkeypatch):
    """How often an arm was prepared."""
    right, asked = arms.prepare, []

    def prepare(settings):
        asked.append(settings)
        return right(settings)

    monkeypatch.setattr(arms, "prepare", prepare)
    return asked


def test_two_hundred_arms_are_planned_with_one_corpus(prepared):
    study = from_dict(
        {
            **BASE, "design": "factorial", "factors": FACTORS, "baseline": "m15-l3-t2",
            "moves": ["masking.mask_rate", "optimizer.learning_rate", "budget.amount"],
        },
        name="many",
    )  # fmt: skip
    composed = compose_arms(study)
    found = plan.costs(study, composed)
    assert len(found) == 200
    assert len(prepared) == 1
    probe = plan.Probe(1000.0, 800.0, 100, 80.0)
    lines = plan.plan_lines(study, composed, found, probe, 5)
    said = "\n".join(lines)
    assert "200 arms x 5 seeds = 1000 runs" in said
    line = next(line for line in lines if line.startswith("  m50-l1-t4:"))
    assert "masking.mask_rate 0.15 -> 0.5" in line
    assert "optimizer.learning_rate 0.003 -> 0.001" in line
    assert "budget.amount 200 -> 400" in line
    flops = found["m50-l1-t4"].flops_per_token / found["m15-l3-t2"].flops_per_token
    assert flops > 1.01  # more tokens reach the head
    assert f"about {400 * 800 * flops / 1000 / 60:.1f} min of pretraining a run" in line
    weights = found["m50-l1-t4"].parameters * 4 / 1e6
    assert f"about {weights * 1000:,.0f} MB of weights in the end" in said
    assert f"holds up to {10 * weights:,.0f} MB (checkpoints" in said
    assert "evaluation (fine-tuning, minimal pairs) come on top and are not measured" in said


def test_sizes_are_those_of_the_model_that_is_built(prepared):
    from ablate.run.models import build_model

    study = from_dict(
        {
            **BASE, "baseline": "plain",
            "arms": {
                "plain": [], "wide": ["size.hidden_size=96"], "bert": ["encoder=bert"],
                "long": ["input_format.max_length=32"], "nsp": ["nsp=true"],
                "half": ["trainer.global_batch_size=8"], "words": ["tokenizer.vocab_size=300"],
            },
            "moves": [
                "encoder.*", "size.*", "optimizer.*", "tokenizer.*", "nsp", "input_format.*",
                "trainer.*", "evaluation.finetune.*",
            ],
        },
        name="sizes",
    )  # fmt: skip
    composed = compose_arms(study)
    found = plan.costs(study, composed)
    assert len(prepared) == 6  # a batch size changes none of them
    names = ("plain", "wide", "bert", "long", "nsp", "words")
    for settings, arm in zip(list(prepared), names, strict=True):
        model = build_model(arms.prepare(settings))
        assert found[arm].parameters == sum(p.numel() for p in model.parameters()), arm
    assert found["half"].parameters == found["plain"].parameters
    assert found["half"].rows_a_step * 2 == found["plain"].rows_a_step


def test_the_probe_measures_a_budget_of_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = from_dict(
        {**BASE, "baseline": "plain", "arms": {"plain": [], "half": ["masking.mask_rate=0.5"]},
         "moves": ["masking.mask_rate"]},
        name="two",
    )  # fmt: skip
    monkeypatch.setattr(plan, "PROBE_STEPS", (2, 4))
    probe = plan.measured_speed(study, [])
    assert probe.tokens_per_second > 0
    assert 16 * 64 * 0.5 < probe.tokens_per_step <= 16 * 64
    assert list(tmp_path.iterdir()) == []
    composed = compose_arms(study)
    lines = plan.plan_lines(study, composed, plan.costs(study, composed), probe, 5, 90.0)
    assert sum("min of pretraining a run" in line for line in lines) == 2
    assert "evaluation about 0.2 h more (90 s a run" in lines[-1]  # 10 runs


def test_evaluation_is_told_where_a_run_has_measured_it(tmp_path):
    study = from_dict({**BASE, "baseline": "plain", "arms": {"plain": []}}, name="one")
    folder = StudyFolder(tmp_path, study)
    assert plan.evaluation_seconds(study, folder) is None
    run = tmp_path / "single" / "plain-s0-x"
    run.mkdir(parents=True)
    (run / "record.json").write_text(
        '{"status": "complete", "scores": {}, '
        '"timings": {"evaluation_seconds": {"a": 2.5, "b": 4.0}}}'
    )
    folder.note("plain", 0, State("complete", run.name))
    assert plan.evaluation_seconds(study, folder) == 6.5
