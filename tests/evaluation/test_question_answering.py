"""Question answering: answers found and cut by characters, windows, scores as SQuAD's, a toy."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch.nn import functional as F

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import kinds, question_scores
from ablate.evaluation.fitting import FinetuneSettings
from ablate.evaluation.measurement import EvaluationResult, Setup, Subject, weights_hash
from ablate.evaluation.protocol import evaluate
from ablate.evaluation.question_answering import QuestionAnswering, _encoded, span_loss
from ablate.evaluation.question_data import Question, QuestionSpec, from_rows, load_questions
from ablate.evaluation.question_windows import _best_span, _window_starts, encode_questions
from ablate.tokens.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PIECES = ["un", "##do", "##ing", "do", "go", "where", "mask", "e", "##lan", ".", "[", "]"]
LETTERS = list("abcdfghi")
QUICK = {"learning_rate": 1e-2, "batch_size": 8, "num_epochs": 8, "min_steps": 0, "max_length": 24}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A lower-casing WordPiece with BERT's normalizer."""
    from tokenizers import Tokenizer as Rust
    from tokenizers import models, normalizers, pre_tokenizers

    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES, *LETTERS]
    made = Rust(models.WordPiece({e: i for i, e in enumerate(entries)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(entries[:5])
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(file))
    return Tokenizer(file)


def make_model(tokenizer, **changes):
    config = EncoderConfig(
        **{
            "vocab_size": tokenizer.vocab_size,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 32,
            "init_std": 0.1,
            **changes,
        }
    )
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=32)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model


def row(context, question="where", answers=(), starts=None, **more):
    starts = [context.index(a) for a in answers] if starts is None else starts
    return {
        "context": context,
        "question": question,
        "answers": {"text": list(answers), "answer_start": list(starts)},
        **more,
    }


def toy(number, seed, unanswerable=False):
    """Letters in any order around `go` or `undoing`, which is the answer, or around nothing."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        words = random.permutation(LETTERS)[: random.integers(2, 9)].tolist()
        answer = ["go", "undoing"][random.integers(2)]
        if unanswerable and i % 2:
            rows.append(row(" ".join(words)))
            continue
        words.insert(int(random.integers(len(words) + 1)), answer)
        rows.append(row(" ".join(words), answers=[answer]))
    return rows


def task_of(train, scored, **spec):
    spec = QuestionSpec.from_dict({"name": "toy", "suite": "x", **spec})
    data = from_rows(spec, {"validation": (scored, "validation")}, (train, "train"))
    return QuestionAnswering(data)


def setup_of(tmp_path, num_seeds=1, **settings):
    return Setup(0, FinetuneSettings(**{**QUICK, **settings}), num_seeds, tmp_path)


def measure(task, model, tokenizer, setup):
    subject = Subject(model, tokenizer, weights_hash(model))
    numbers = range(task.num_parts(setup))
    parts = [task.measure(subject, setup, n, lambda done, total: None) for n in numbers]
    result = EvaluationResult()
    task.add_to(result, parts, setup)
    return result, parts


def questions_of(*rows):
    spec = QuestionSpec.from_dict({"name": "toy", "unanswerable": True})
    return from_rows(spec, {"validation": (rows, "rows")}, (rows, "rows")).train


def encoded(tokenizer, *rows, max_length=24, train=True, **spec):
    spec = QuestionSpec.from_dict({"name": "toy", **spec})
    return encode_questions(
        tokenizer, questions_of(*rows), spec, max_length=max_length, train=train
    )


def pieces_of(tokenizer, windows, number):
    rows = windows.asked.rows
    ids = rows.input_ids[rows.starts[number] : rows.starts[number + 1]]
    return [tokenizer.id_to_token(i) for i in ids]


def test_scores_equal_those_of_torchmetrics_on_random_strings():
    from torchmetrics.functional.text import squad

    random = np.random.default_rng(0)
    words = ["The", "a", "an", "cat", "Cat.", "sat!", "1976", "$5", "é", "—", "the,", "", "on", "“"]
    draw = lambda: " ".join(random.choice(words, random.integers(0, 5)))  # noqa: E731

    def compare(number):
        predicted = [draw() for _ in range(number)]
        answers = [[draw() for _ in range(random.integers(1, 4))] for _ in range(number)]
        theirs = squad(
            [{"prediction_text": text, "id": str(i)} for i, text in enumerate(predicted)],
            [
                {"answers": {"text": given, "answer_start": [0] * len(given)}, "id": str(i)}
                for i, given in enumerate(answers)
            ],
        )
        for metric in ("exact_match", "f1"):
            ours = question_scores.by_question(metric, predicted, answers, unanswerable=False)
            assert 100 * ours.mean() == pytest.approx(float(theirs[metric]), rel=1e-5)

    for number in [1] * 40 + [200]:
        compare(number)


def test_scores_of_hand_cases():
    by = lambda *args: question_scores.by_question(*args, unanswerable=True).tolist()  # noqa: E731
    assert by("f1", ["the new York"], [["New York City"]]) == [0.8]
    assert by("exact_match", ["The  Cat!"], [["dog", "cat"]]) == [1.0]
    assert by("f1", ["", "go", ""], [[], [], ["go"]]) == [1.0, 0.0, 0.0]
    assert by("f1", ["", "go"], [["the"], ["the", "go"]]) == [1.0, 1.0]


def test_answers_are_found_by_characters_and_cut_from_the_original_text(tokenizer):
    windows = encoded(tokenizer, row("b UNDOING. Élan", answers=["UNDOING"]))
    pieces = pieces_of(tokenizer, windows, 0)
    assert pieces == [
        "[CLS]", "where", "[SEP]", "b", "un", "##do", "##ing", ".", "e", "##lan", "[SEP]",
    ]  # fmt: skip
    begin, end = windows.spans[0]
    assert pieces[begin : end + 1] == ["un", "##do", "##ing"]
    assert windows.asked.rows.token_type_ids.tolist() == [0] * 3 + [1] * 8
    windows = encoded(tokenizer, row("b UNDOING. Élan", answers=["Élan"]))
    begin, end = windows.spans[0]
    assert pieces[begin : end + 1] == ["e", "##lan"]
    assert windows.facts["answers_inside_tokens"] == 0


def test_text_that_names_a_special_token_stays_text(tokenizer):
    windows = encoded(tokenizer, row("b [MASK] c", question="[MASK]", answers=["c"]))
    pieces = pieces_of(tokenizer, windows, 0)
    assert pieces == [
        "[CLS]", "[", "mask", "]", "[SEP]", "b", "[", "mask", "]", "c", "[SEP]",
    ]  # fmt: skip
    assert pieces[windows.spans[0, 0]] == "c"


def test_answers_that_cannot_be_aligned_are_counted(tokenizer):
    rows = [
        row("a b c", answers=["b"]),
        row("a b c", answers=["b"], starts=[0]),  # not there
        row("a b \u200b c", answers=["\u200b"]),  # nothing is left of it
        row("a undoing c", answers=["doin"]),  # inside tokens: kept, with the tokens around it
        row("a b c"),
    ]
    windows = encoded(tokenizer, *rows)
    facts = windows.facts
    assert windows.question.tolist() == [0, 3, 4]
    assert windows.spans.tolist() == [[4, 4], [5, 6], [0, 0]]
    assert (facts["answers_not_in_place"], facts["answers_without_tokens"]) == (1, 1)
    assert (facts["answers_inside_tokens"], facts["windows_without_answer"]) == (1, 1)
    assert facts["questions"] == facts["windows"] == 3
    with pytest.raises(ValueError, match="no training question has an answer with tokens"):
        encoded(tokenizer, rows[1])


@pytest.mark.parametrize(
    ("tokens", "room", "stride", "starts"),
    [
        (10, 20, 5, [0]),
        (10, 10, 5, [0]),
        (11, 10, 5, [0, 5]),
        (25, 10, 5, [0, 5, 10, 15]),
        (26, 10, 128, [0, 5, 10, 15, 20]),
        (500, 300, 128, [0, 128, 256]),
        (0, 10, 5, [0]),
    ],
)
def test_windows_share_half_at_least_and_reach_the_end(tokens, room, stride, starts):
    assert _window_starts(tokens, room, stride) == starts
    assert starts[-1] + room >= tokens


def test_a_long_paragraph_is_windows_and_only_whole_answers_are_targets(tokenizer):
    words = [*LETTERS, "a", "go", "do", *LETTERS, *LETTERS[:7]]  # the first window ends between
    context = " ".join(words)
    windows = encoded(tokenizer, row(context, answers=["go do"]), max_length=14)
    assert windows.facts["windows"] == len(windows) == 5
    assert windows.asked.rows.lengths.max() == 14
    shown = set()
    for number in range(5):
        pieces = pieces_of(tokenizer, windows, number)
        begin, end = windows.spans[number]
        whole = "go" in pieces and "do" in pieces
        assert pieces[begin : end + 1] == (["go", "do"] if whole else ["[CLS]"])
        shown |= set(range(windows.first[number], windows.first[number] + windows.count[number]))
    assert shown == set(range(len(context.split())))
    assert 0 < windows.facts["windows_without_answer"] < 5
    assert windows.facts["answers_in_no_window"] == 0
    long = encoded(tokenizer, row(context, answers=[context]), max_length=14)
    assert long.facts["answers_in_no_window"] == 1
    assert not long.spans.any()


def test_a_long_question_leaves_room_for_the_paragraph(tokenizer):
    windows = encoded(
        tokenizer, row("a b go", question="where " * 50, answers=["go"]), max_length=13
    )
    assert windows.facts["truncated_question_tokens"] == 45
    assert pieces_of(tokenizer, windows, 0)[5:] == ["where", "[SEP]", "a", "b", "go", "[SEP]"]


def test_the_best_span_is_that_of_all_pairs():
    random = np.random.default_rng(0)
    for _ in range(200):
        number, longest = random.integers(1, 12), int(random.integers(1, 6))
        begins, ends = random.normal(size=(2, number)).astype(np.float32)
        begins[random.random(number) < 0.2] = -np.inf
        pairs = {
            (i, j): begins[i] + ends[j]
            for i in range(number)
            for j in range(i, min(i + longest, number))
        }
        found, best = _best_span(begins, ends, longest), max(pairs, key=pairs.get)
        if np.isfinite(pairs[best]):
            assert (found[1], found[2]) == best
            assert found[0] == pytest.approx(pairs[best])
        else:
            assert found is None


def test_loss_is_half_the_sum_of_two_cross_entropies_over_each_row():
    outputs = torch.randn(9, 2, requires_grad=True)
    lengths, spans = torch.tensor([4, 2, 3]), torch.tensor([[1, 3], [0, 0], [2, 2]])
    loss = span_loss(outputs, lengths, spans)
    by_hand = 0.0
    for number, part in enumerate(outputs.split([4, 2, 3])):
        for side in (0, 1):
            by_hand += F.cross_entropy(part[None, :, side], spans[number, side : side + 1]) / 2
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-6)
    loss.backward()
    assert torch.isfinite(outputs.grad).all()
    assert outputs.grad[0:4].sum(dim=0).abs().max() < 1e-6  # a softmax a row


def test_loss_equals_that_of_transformers_on_the_same_outputs():
    from transformers import BertConfig, BertForQuestionAnswering

    config = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=8,
    )  # fmt: skip
    theirs = BertForQuestionAnswering(config).eval()
    ids = torch.randint(1, 20, (3, 6))
    spans = torch.tensor([[1, 3], [0, 0], [2, 5]])
    found = theirs(input_ids=ids, start_positions=spans[:, 0], end_positions=spans[:, 1])
    outputs = torch.stack([found.start_logits, found.end_logits], dim=-1).flatten(0, 1)
    ours = span_loss(outputs, torch.tensor([6, 6, 6]), spans) / 3
    assert ours.item() == pytest.approx(found.loss.item(), rel=1e-6)


def test_a_toy_is_learned_completely(tokenizer, tmp_path):
    task = task_of(toy(120, 0), toy(60, 1))
    result, parts = measure(task, make_model(tokenizer), tokenizer, setup_of(tmp_path, 2))
    assert result.scores == {"x/toy/exact_match": 1.0, "x/toy/f1": 1.0}
    entry = result.details["toy"]["metrics"]["x/toy/f1"]
    assert entry["by_seed"] == [1.0, 1.0]
    assert entry["n"] == 60
    assert entry["standard_error"] == 0.0
    assert parts[0].facts["nothing"] == "the first 1 words of the paragraph"
    gold = [answers[0] for answers in parts[0].table["label"]]
    first = [q.context.split()[0] for q in task.data.scored["validation"]]
    assert entry["majority"] == np.mean([a == b for a, b in zip(first, gold, strict=True)])
    assert parts[0].table["prediction"] == gold


def test_answers_at_random_are_at_chance(tokenizer, tmp_path):
    random = np.random.default_rng(0)
    rows = []
    for _ in range(400):
        words = random.permutation(LETTERS).tolist()
        rows.append(row(" ".join(words), answers=[str(random.choice(words))]))
    task = task_of(rows[:60], rows[60:])
    result, _ = measure(task, make_model(tokenizer), tokenizer, setup_of(tmp_path, num_epochs=2))
    chance = 1 / len(LETTERS)
    bound = chance + 4 * (chance * (1 - chance) / 340) ** 0.5
    assert result.scores["x/toy/exact_match"] < bound


def test_questions_without_an_answer_are_left_unanswered(tokenizer, tmp_path):
    task = task_of(toy(150, 0, True), toy(60, 1, True), unanswerable=True)
    result, parts = measure(task, make_model(tokenizer), tokenizer, setup_of(tmp_path))
    assert result.scores["x/toy/exact_match"] == 1.0
    assert parts[0].table["prediction"][1] == ""
    entry = result.details["toy"]
    assert entry["metrics"]["x/toy/f1"]["majority"] == 0.5
    assert entry["by_kind"]["x/toy/f1"]["no_answer"] == {"n": 30, "value": 1.0}


def test_an_answer_in_a_later_window_is_found(tokenizer, tmp_path):
    task = task_of(toy(100, 0), toy(30, 1))
    setup = setup_of(tmp_path, max_length=10, num_epochs=10)
    result, parts = measure(task, make_model(tokenizer), tokenizer, setup)
    assert parts[0].facts["encoded"]["validation"]["windows"] > 30
    assert result.scores["x/toy/exact_match"] > 0.95


@pytest.mark.parametrize("options", [{"frozen": True}, {"early_stopping": 3}])
def test_frozen_and_early_stopping(tokenizer, tmp_path, options):
    model = make_model(tokenizer)
    before = weights_hash(model)
    setup = setup_of(tmp_path, num_epochs=20, learning_rate=2e-2, **options)
    result, parts = measure(task_of(toy(100, 0), toy(40, 1)), model, tokenizer, setup)
    assert weights_hash(model) == before
    assert result.scores["x/toy/f1"] > 0.6
    assert ("early_stopping" in parts[0].facts) == ("early_stopping" in options)


def test_causal_encoders_and_caps(tokenizer, tmp_path):
    task = task_of(toy(90, 0), toy(40, 1))
    setup = setup_of(tmp_path, max_train_examples=50, max_scored_examples=11)
    result, (part,) = measure(task, make_model(tokenizer, causal=True), tokenizer, setup)
    assert part.facts["reads_to_the_left_only"]
    assert part.facts["num_train_examples"] == 50
    assert part.facts["num_scored_available"] == {"validation": 40}
    assert result.details["toy"]["n"]["validation"] == 11


def test_scores_follow_from_the_stored_file_and_runs_agree(tokenizer, tmp_path):
    task = pickle.loads(pickle.dumps(task_of(toy(40, 0), toy(10, 1))))
    arguments = {"measurements": [task], "seed": 0, "num_finetune_seeds": 2, **QUICK}
    model = make_model(tokenizer)
    first = evaluate(model, tokenizer, out_dir=tmp_path / "a", **arguments)
    again = evaluate(model, tokenizer, out_dir=tmp_path / "b", **arguments)
    stored = evaluate(model, tokenizer, out_dir=tmp_path / "a", **arguments)
    assert first.details == again.details == stored.details


def test_a_held_out_text_is_held_out_whole(tokenizer, tmp_path):
    rows = [row(f"{a} go {b}", answers=["go"]) for a in LETTERS for b in LETTERS[:2]] * 2
    task = task_of(rows, rows)
    setup = setup_of(tmp_path)
    model = make_model(tokenizer)
    found = _encoded(task, Subject(model, tokenizer, ""), setup)
    contexts = [task.data.train[i].context for i in found.train.question]
    assert found.paragraphs.max() + 1 == len(set(contexts)) == 16
    assert len({(c, p) for c, p in zip(contexts, found.paragraphs.tolist(), strict=True)}) == 16


NESTED = {
    "version": "v2.0",
    "data": [
        {
            "title": "T",
            "paragraphs": [
                {
                    "context": "a go b",
                    "qas": [
                        {"id": "1", "question": "where",
                         "answers": [{"text": "go", "answer_start": 2}]},
                        {"id": "2", "question": "do", "is_impossible": True, "answers": [],
                         "plausible_answers": [{"text": "a", "answer_start": 0}]},
                    ],
                }
            ],
        }
    ],
}  # fmt: skip


def test_published_json_and_flat_lines_are_the_same_data(tmp_path):
    flat = [
        row("a go b", answers=["go"], id="1", title="T"),
        row("a go b", question="do", id="2", title="T"),
    ]
    (tmp_path / "flat" / "qa" / "toy").mkdir(parents=True)
    (tmp_path / "nested" / "toy").mkdir(parents=True)
    for split, name in (("train", "train-v2.0.json"), ("validation", "validation.json")):
        lines = "".join(json.dumps(r) + "\n" for r in flat)
        (tmp_path / "flat" / "qa" / "toy" / f"{split}.jsonl").write_text(lines)
        (tmp_path / "nested" / "toy" / name).write_text(json.dumps(NESTED))
    spec = QuestionSpec.from_dict(
        {"name": "toy", "unanswerable": True, "files": {"train": "train-v2.0.json"}}
    )
    ours, theirs = (load_questions(spec, path=tmp_path / n) for n in ("flat", "nested"))
    assert ours.train == theirs.train == ours.scored["validation"]
    assert ours.hash() == theirs.hash()
    assert ours.train[0] == Question("1", "T", "a go b", "where", ("go",), (2,))
    (tmp_path / "nested" / "toy" / "validation.json").write_text("{}")
    with pytest.raises(ValueError, match=r"validation\.json is not SQuAD's JSON"):
        load_questions(spec, path=tmp_path / "nested")


@pytest.mark.parametrize("key", ["title", "context"])
def test_one_file_is_cut_so_that_no_text_is_on_both_sides(key):
    rows = [
        row(f"{p} go {t}", answers=["go"], title=t, question=q)
        for t in LETTERS
        for p in LETTERS[:3]
        for q in ("where", "do")
    ]

    def cut(**more):
        spec = QuestionSpec.from_dict({"name": "toy", "split_by": key, **more})
        return from_rows(spec, {"validation": (rows, "file")})

    data, again, other = cut(), cut(), cut(split_seed=1)
    sides = [{getattr(q, key) for q in part} for part in (data.train, data.scored["validation"])]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == round(0.25 * len(sides[0] | sides[1]))
    assert len(data.train) + len(data.scored["validation"]) == len(rows)
    assert data.hash() == again.hash() != other.hash()
    assert f"groups by {key} are held out" in data.notes["train"]
    with pytest.raises(ValueError, match="leaves one side empty"):
        cut(held_out_share=0.001)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["accuracy"]}, "metrics=.*is not possible"),
        ({"split_by": "topic"}, "split_by: title or context"),
        ({"held_out_share": 1.0}, "held_out_share=1.0"),
        ({"stride": 3}, r"unknown keys \['stride'\]"),
        ({"splits": "validation"}, r"must be a list: \[validation\]"),
    ],
)
def test_bad_definitions_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        QuestionSpec.from_dict({"name": "toy", **changes})


def test_bad_data_is_refused(tmp_path):
    good = [row("a go b", answers=["go"])]
    with pytest.raises(ValueError, match="has no answer.*unanswerable: true"):
        task_of(good, [row("a b")])
    with pytest.raises(ValueError, match="wanted context, question and answers"):
        task_of([{"context": "a", "question": "b", "answers": ["c"]}], good)
    with pytest.raises(ValueError, match="holds no questions"):
        task_of([], good)
    with pytest.raises(ValueError, match=r"no file for split 'validation'.*qa/squad/"):
        kinds.load(
            yaml.safe_load((ROOT / "conf/evaluation/task/squad.yaml").read_text()), path=tmp_path
        )


@pytest.mark.skipif(not (DATA / "qa").is_dir(), reason="no local data beside the repository")
def test_local_xquad_reads_with_the_counts_of_its_readme():
    text = (ROOT / "conf/evaluation/task/xquad.yaml").read_text()
    data = kinds.load(yaml.safe_load(text), path=DATA).data
    questions = [*data.train, *data.scored["validation"]]
    assert len(questions) == 1190
    assert len({q.context for q in questions}) == 240
    for question in questions:
        begin, answer = question.starts[0], question.answers[0]
        assert question.context[begin : begin + len(answer)] == answer
