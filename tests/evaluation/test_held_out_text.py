"""Held-out rows, bands and parts of speech: a function of the corpus, and of nothing else."""

import json

from ablate.corpus.sources import load_files
from ablate.evaluation.frequency_bands import BANDS, WORD, band_of_rank, bands_of, count_words
from ablate.evaluation.held_out_text import from_corpus, synthetic_tags


def test_bands_by_hand():
    counts = count_words(["The cat, the dog.", "the Cat"])
    assert counts == {"the": 3, "cat": 2, ",": 1, "dog": 1, ".": 1}
    assert count_words(["a b", "c d", "e"], max_words=3) == {"a": 1, "b": 1, "c": 1, "d": 1}
    many = {f"w{i:05d}": 20_000 - i for i in range(12_000)}
    found = bands_of(["w00000", "w00099", "w00100", "w00999", "w01000", "w11999", "new"], many)
    assert [found[w] for w in sorted(found)] == [
        "unseen", "rank 1-100", "rank 1-100", "rank 101-1000", "rank 101-1000",
        "rank 1001-10000", "rank 10001+",
    ]  # fmt: skip
    assert band_of_rank(10_000) == BANDS[2]
    assert BANDS[-1] == band_of_rank(None) == "unseen"


def test_text_is_held_out_and_does_not_depend_on_the_order_of_documents(tmp_path):
    documents = [f"Number {i} says that word{i} is here. It ends." for i in range(200)]
    found = []
    for order in (1, -1):
        folder = tmp_path / str(order)
        folder.mkdir()
        lines = [json.dumps({"text": text}) for text in documents[::order]]
        (folder / "all.jsonl").write_text("\n".join(lines))
        corpus = load_files(folder, validation_fraction=0.3, cache_dir=tmp_path / "cache")
        for cache in (None, tmp_path / "cache", tmp_path / "cache"):
            found.append(
                from_corpus(corpus, num_words=100, words_per_row=8, seed=0, cache_dir=cache)
            )
    assert len({text.hash() for text in found}) == 1
    text = found[0]
    words = [w for row in text.rows for segment in row for w in WORD.findall(segment.text)]
    assert 100 <= len(words) == text.num_words < 112
    bands = {
        segment.text[b:e]: band
        for row in text.rows for segment in row
        for b, e, band in zip(segment.begins, segment.ends, segment.bands, strict=True)
    }  # fmt: skip
    assert bands["says"] == "rank 1-100"
    assert {band for word, band in bands.items() if word.startswith("word")} == {"unseen"}


def test_parts_of_speech_of_the_built_in_language(built_in):
    text = from_corpus(
        built_in[0], num_words=1_500, words_per_row=24, seed=0, tags=synthetic_tags()
    )
    tags = [tag for row in text.rows for segment in row for tag in segment.tags]
    assert set(tags) <= {"noun", "name", "verb", "adjective", "function word", "sign", ""}
    assert tags.count("") < 0.02 * len(tags)
    assert len(set(tags)) >= 6
