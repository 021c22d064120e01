"""Zero-shot measurements of a finished run are scored again from their files, parts and all."""

import json

from ablate.evaluation import predictions
from ablate.evaluation.measurement import EvaluationResult, Part
from ablate.evaluation.mlm_scores import add_quality
from ablate.evaluation.pair_scores import add_pairs
from ablate.evaluation.stored import open_run, score_again


def pair_part(number, paradigm, wins):
    n = len(wins)
    table = {
        "example_id": [f"{paradigm}/{i}" for i in range(n)],
        "label": [1.0] * n,
        "prediction": [float(w) for w in wins],
        "split": ["validation"] * n,
        "finetune_seed": [0] * n,
        "part": [number] * n,
        "paradigm": [paradigm] * n,
        "phenomenon": ["binding"] * n,
        "field": ["syntax"] * n,
        "log_likelihood_good": [float(w) for w in wins],
        "log_likelihood_bad": [0.5] * n,
    }
    facts = {
        "suite": "blimp", "name": "blimp", "likelihood": "pseudo-log-likelihood", "tier": "full",
        "truncated_tokens": number + 1, "unknown_tokens": 0,
    }  # fmt: skip
    return Part(table, facts)


def quality_part():
    table = {
        "example_id": ["0:0", "0:1", "1:0"],
        "label": [7, 8, 7],
        "prediction": [7, 7, 9],
        "split": ["whole_word_mask"] * 3,
        "finetune_seed": [0] * 3,
        "log_probability": [-1.0, -2.0, -3.0],
        "word": ["ab", "ab", "c"],
        "word_number": [0, 0, 5],
        "band": ["rank 1-100", "rank 1-100", "unseen"],
        "tag": [""] * 3,
        "pieces": [2, 2, 1],
        "decile": [1, 2, 10],
        "bytes": [1.0, 1.0, 1.0],
    }
    return Part(table, {"name": "mlm_quality", "truncated_tokens": 0})


def test_scores_are_those_of_the_record(tmp_path):
    pairs = [pair_part(0, "one", [1, 1, 0, 0]), pair_part(1, "two", [1, 0.5])]
    result = EvaluationResult()
    add_pairs(result, pairs)
    add_quality(result, [quality_part()])
    for name, parts in (("blimp", pairs), ("mlm_quality", [quality_part()])):
        file = tmp_path / "predictions" / f"{name}.parquet"
        predictions.write(file, predictions.joined(parts), key={})
    record = {
        "status": "complete", "arm": "a", "seed": 0, "scores": result.scores,
        "evaluation": result.details,
    }  # fmt: skip
    (tmp_path / "record.json").write_text(json.dumps(record, allow_nan=False))
    found = score_again(open_run(tmp_path))
    assert found.as_recorded == []
    assert found.differences == {}
    assert found.result.scores == result.scores
    assert found.result.details["blimp"]["truncated_tokens"] == 3
    assert found.result.scores["blimp/accuracy"] == (0.5 + 0.75) / 2


def test_quality_by_hand():
    result = EvaluationResult()
    add_quality(result, [quality_part()])
    assert result.scores["mlm_quality/whole_word_mask/loss"] == 2.0
    assert result.scores["mlm_quality/whole_word_mask/accuracy"] == 1 / 3
    bits = 6.0 / 0.6931471805599453 / 3
    assert abs(result.scores["mlm_quality/whole_word_mask/bits_per_byte"] - bits) < 1e-12
    tables = result.details["mlm_quality"]["breakdown"]["whole_word_mask"]
    assert tables["frequency_band"]["rank 1-100"]["words"] == 1
    assert tables["frequency_band"]["unseen"]["loss"] == 3.0
    assert list(tables["position_decile"]) == ["1", "2", "10"]
    metric = result.details["mlm_quality"]["metrics"]["mlm_quality/whole_word_mask/accuracy"]
    assert metric["majority"] == 2 / 3
