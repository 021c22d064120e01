"""Word starts, special tokens, unknown text, and that training is a function of its input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from ablate.tokens import training
from ablate.tokens.tokenizer import SPECIAL_TOKENS, Tokenizer, load
from ablate.tokens.words import ChunkCache

LINES = ["lower lowest newer wider low new wide\nthe red hen met ten men"]
KINDS = [("wordpiece", 60), ("byte_bpe", 280), ("unigram", 40)]
ROOT = Path(__file__).parents[2]


def train(kind, size, cache, documents=LINES, lowercase=True, **options):
    return training.train(
        kind, documents, vocab_size=size, lowercase=lowercase, cache_dir=cache, **options
    )


def pieces_and_starts(tokenizer, text):
    encoded = tokenizer.encode_batch([text])[0]
    pieces = [tokenizer.id_to_token(i) for i in encoded.ids]
    return pieces, [i for i, start in enumerate(encoded.word_starts) if start]


def bert_file(folder: Path) -> Path:
    words = [*SPECIAL_TOKENS, "[unused0]", "un", "##believ", "##able", "cat", "##s"]
    built = tokenizers.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    built.normalizer = normalizers.BertNormalizer()
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.add_special_tokens(list(SPECIAL_TOKENS))
    built.enable_truncation(3)
    built.enable_padding(length=16)
    built.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return save(built, folder)


def roberta_file(folder: Path) -> Path:
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words += ["u", "n", "b", "e", "l", "i", "v", "a", "c", "t", "s", "Ġ"]
    merges = ["u n", "b e", "l i", "be li", "e v", "beli ev", "a b", "l e", "ab le", "c a", "ca t"]
    words += [merge.replace(" ", "") for merge in [*merges, "Ġ cat"]]
    merges.append("Ġ cat")
    built = tokenizers.Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, [tuple(m.split()) for m in merges])
    )
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return save(built, folder)


def metaspace_file(folder: Path) -> Path:
    words = ["<s>", "<pad>", "</s>", "<unk>", "▁un", "believ", "able", "▁cat", "s", "<mask>"]
    built = tokenizers.Tokenizer(models.Unigram([(word, -1.0) for word in words], unk_id=3))
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    built.decoder = decoders.Metaspace()
    built.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return save(built, folder)


def wordless_file(folder: Path) -> Path:
    built = tokenizers.Tokenizer.from_file(str(metaspace_file(folder)))
    built.pre_tokenizer = None
    built.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return save(built, folder)


def save(built: tokenizers.Tokenizer, folder: Path) -> Path:
    built.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize(
    ("make", "pieces"),
    [
        (bert_file, ["un", "##believ", "##able", "cat", "##s"]),
        (roberta_file, ["un", "believ", "able", "Ġcat", "s"]),
        (metaspace_file, ["▁un", "believ", "able", "▁cat", "s"]),
    ],
)
def test_words_in_three_styles(tmp_path, make, pieces):
    tokenizer = load(make(tmp_path))
    assert tokenizer.knows_words
    assert pieces_and_starts(tokenizer, "unbelievable cats") == (pieces, [0, 3])


def test_a_tokenizer_without_words_says_so(tmp_path):
    tokenizer = load(wordless_file(tmp_path))
    assert not tokenizer.knows_words
    assert pieces_and_starts(tokenizer, "cat cats") == (["▁cat", "▁cat", "s"], [0])


def test_special_ids_of_the_three_styles(tmp_path):
    bert, roberta = load(bert_file(tmp_path)), load(roberta_file(tmp_path))

    def roles(t):
        return (t.pad_token_id, t.unk_token_id, t.cls_token_id, t.sep_token_id, t.mask_token_id)

    assert roles(bert) == (0, 1, 2, 3, 4)
    assert roles(roberta) == (1, 3, 0, 2, 4)
    assert bert.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert bert.ordinary_ids.tolist() == [6, 7, 8, 9, 10], "[unused0] is no candidate"
    assert bert.vocab_size == 11
    assert load(metaspace_file(tmp_path)).ordinary_ids.tolist() == [4, 5, 6, 7, 8]


def test_the_names_in_a_folder_come_first(tmp_path):
    roberta_file(tmp_path)
    named = {"cls_token": {"content": "</s>"}, "mask_token": "<mask>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    tokenizer = load(tmp_path)
    assert tokenizer.cls_token_id == tokenizer.sep_token_id == 2
    assert tokenizer.hash != Tokenizer(tmp_path / "tokenizer.json").hash


def test_no_special_token_no_cut_no_padding_and_none_from_the_text(tmp_path):
    tokenizer = load(bert_file(tmp_path))
    assert pieces_and_starts(tokenizer, "cat cat cat cat cats")[0] == ["cat"] * 5 + ["##s"]
    assert pieces_and_starts(tokenizer, "cat [MASK]")[0] == ["cat", "[UNK]", "[UNK]", "[UNK]"]
    spelled = load(wordless_file(tmp_path)).encode_texts(["cat<mask>s"])
    assert spelled.special_in_text.tolist() == [1]
    assert spelled.ids.tolist() == [7, 3, 8]
    assert tokenizer.encode_batch(["", "cat"])[0].ids == []


@pytest.mark.parametrize(
    ("text", "pieces", "unk_tokens", "unk_characters"),
    [
        ("a" * 100, ["a"] + ["##a"] * 99, 0, 0),
        ("a" * 101, ["[UNK]"], 1, 101),
        ("😀😀😀", ["[UNK]"], 1, 3),
        ("cat 😀😀😀", ["cat", "[UNK]"], 1, 3),
        ("שלום cat", ["[UNK]", "cat"], 1, 4),
        ("CÁT  éè cat", ["cat", "[UNK]", "cat"], 1, 2),
    ],
)
def test_unknown_tokens_and_lost_characters(tmp_path, text, pieces, unk_tokens, unk_characters):
    tokenizer = training.from_morphemes(["a", "##a", "cat"], cache_dir=tmp_path)
    assert pieces_and_starts(tokenizer, text)[0] == pieces
    flat = tokenizer.encode_texts(["cat", text, "cat"])
    assert flat.unk_tokens.tolist() == [0, unk_tokens, 0]
    assert flat.unk_characters.tolist() == [0, unk_characters, 0]
    assert flat.lengths.tolist() == [1, len(pieces), 1]


ALPHABET = "acCÁt.,'[]MASK \u00a0\u2028\x1c\x00\t\n\u0301\u00a8中😀\u200b\ufb01ßİ"


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(st.text(ALPHABET, max_size=20), st.text(max_size=20), st.just("a" * 101)),
        max_size=6,
    )
)
def test_chunks_give_what_whole_texts_give(vocabulary, texts):
    for tokenizer in vocabulary:
        assert isinstance(tokenizer._chunks, ChunkCache)
        tokenizer._chunks._max_chunks = 40  # forgets now and then
        ours, theirs = tokenizer.encode_texts(texts), tokenizer._encode(texts)
        for name, array in vars(theirs).items():
            assert getattr(ours, name).tolist() == array.tolist(), name
            assert getattr(ours, name).dtype == array.dtype, name


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    folded = training.from_morphemes(["a", "##a", "cat", ".", "中", "[", "##t"], cache_dir=folder)
    cased = train("wordpiece", 60, folder, ["caát Cat. [MASK] ﬁ ß"] * 3, lowercase=False)
    return folded, cased


def test_only_berts_pipeline_goes_by_chunks(tmp_path):
    assert load(bert_file(tmp_path))._chunks is not None
    assert load(roberta_file(tmp_path))._chunks is None
    assert load(metaspace_file(tmp_path))._chunks is None
    built = tokenizers.Tokenizer.from_file(str(bert_file(tmp_path)))
    built.add_tokens(["cat cat"])
    assert load(save(built, tmp_path))._chunks is None


def test_morphemes_are_the_vocabulary(tmp_path):
    tokenizer = training.from_morphemes(["brum", "##ed", "the", "."], cache_dir=tmp_path)
    assert [tokenizer.id_to_token(i) for i in range(9)] == [
        *SPECIAL_TOKENS,
        *("brum", "##ed", "the", "."),
    ]
    assert pieces_and_starts(tokenizer, "the brumed .") == (["the", "brum", "##ed", "."], [0, 1, 3])
    assert tokenizer.decode([7, 5, 6, 8]) == "the brumed."


@pytest.mark.parametrize(("kind", "size"), KINDS)
def test_special_tokens_are_the_first_ids_and_words_are_known(tmp_path, kind, size):
    tokenizer = train(kind, size, tmp_path)
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert [tokenizer.id_to_token(i) for i in range(5)] == list(SPECIAL_TOKENS)
    assert tokenizer.vocab_size <= size
    assert tokenizer.knows_words
    flat = tokenizer.encode_texts(["Lower the NEWEST, low hen."])
    assert (flat.word_starts.sum(), flat.unk_tokens.sum()) == (7, 0 if kind == "byte_bpe" else 2)
    assert tokenizer.decode(tokenizer.encode_batch(["the red hen"])[0].ids).strip() == "the red hen"
    assert tokenizer.encode_batch(["[MASK]"])[0].ids != [4]


def test_lowercase_is_a_choice(tmp_path):
    documents = ["The Hen The Hen the hen"] * 3
    for kind, size in KINDS:
        kept = train(kind, size, tmp_path, documents, lowercase=False)
        assert kept.encode_batch(["The"])[0].ids != kept.encode_batch(["the"])[0].ids
        folded = train(kind, size, tmp_path, documents, lowercase=True)
        assert folded.encode_batch(["The"])[0].ids == folded.encode_batch(["the"])[0].ids


TRAIN = """
import sys, tempfile
from ablate.tokens import training
for kind, size in {kinds}:
    for _ in range(15):
        with tempfile.TemporaryDirectory() as cache:
            print(kind, training.train(
                kind, {lines}, vocab_size=size, lowercase=True, cache_dir=cache).hash)
"""


def test_sixty_trainings_in_four_processes_give_one_tokenizer():
    code = TRAIN.format(kinds=KINDS, lines=LINES)
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(4)
    ]
    results = [line for process in started for line in process.communicate()[0].splitlines()]
    assert len(results) == 60 * len(KINDS)
    assert len(set(results)) == len(KINDS), sorted(set(results))


@pytest.mark.parametrize("kind", training.KINDS)
def test_ties_and_rare_characters_do_not_make_training_random(tmp_path, kind):
    """More characters than there is room for, all pairs equally frequent."""
    letters = [chr(0x3B1 + i) for i in range(24)] + [chr(0x430 + i) for i in range(32)]
    letters += [chr(0x561 + i) for i in range(38)]
    words = [a + b + c for a, b, c in zip(letters, letters[7:], letters[3:], strict=False)]
    documents = [" ".join(words), " ".join(reversed(words))]
    size = 300 if kind == "byte_bpe" else 200
    found = {train(kind, size, tmp_path / str(i), documents).hash for i in range(10)}
    assert len(found) == 1


def test_the_alphabet_is_limited_and_what_is_left_out_recorded(tmp_path):
    documents = ["abc " * 50 + "".join(chr(0x4E00 + i) for i in range(300))]
    tokenizer = train("wordpiece", 200, tmp_path, documents)
    meta = json.loads((tokenizer.file.parent / "meta.json").read_text())
    assert (meta["alphabet"], meta["alphabet_dropped"]) == (64, 239)
    assert tokenizer.encode_texts(["abc 一"]).unk_tokens.tolist() == [0]
    assert tokenizer.encode_texts(["abc " + chr(0x4E00 + 299)]).unk_tokens.tolist() == [1]


def test_trained_once_and_found_again(tmp_path, monkeypatch):
    first = train("wordpiece", 60, tmp_path)
    assert train("wordpiece", 60, tmp_path, iter(LINES)).file == first.file
    keyed = train("wordpiece", 60, tmp_path, documents_key="corpus 1")
    assert keyed.hash == first.hash
    monkeypatch.setattr(training, "_wordpiece", None)  # calling it would be an error
    again = train("wordpiece", 60, tmp_path, documents_key="corpus 1", documents=iter(()))
    assert again.file == keyed.file
    assert train("wordpiece", 60, tmp_path).file == first.file
    assert len(list((tmp_path / "tokenizers").iterdir())) == 2


def test_other_inputs_are_another_tokenizer(tmp_path):
    files = {
        train("wordpiece", 60, tmp_path).file,
        train("wordpiece", 50, tmp_path).file,
        train("wordpiece", 60, tmp_path, lowercase=False).file,
        train("wordpiece", 60, tmp_path, documents=[*LINES, "more"]).file,
        train("unigram", 60, tmp_path).file,
    }
    assert len(files) == 5


@pytest.mark.parametrize(
    ("kind", "size", "documents", "words"),
    [
        ("bpe", 100, LINES, "wordpiece | byte_bpe | unigram"),
        ("byte_bpe", 200, LINES, "at least 262"),
        ("wordpiece", 6, LINES, "at least 7"),
        ("wordpiece", 60, [], "no text"),
        ("unigram", 60, ["  \n "], "no text"),
        ("byte_bpe", 300, [], "no text"),
    ],
)
def test_training_errors(tmp_path, kind, size, documents, words):
    with pytest.raises(ValueError, match=r"tokenizer\.|no text") as caught:
        train(kind, size, tmp_path, documents)
    assert words in str(caught.value)
    assert not list(tmp_path.rglob("tokenizer.json"))


def test_loading_errors(tmp_path):
    with pytest.raises(ValueError, match=r"needs tokenizer\.path"):
        load(None)
    with pytest.raises(ValueError, match=r"there is no file .*tokenizer\.json"):
        load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.path=.* is not a file of"):
        load(tmp_path)
    built = tokenizers.Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, "</s>": 2}, "<unk>"))
    with pytest.raises(ValueError, match=r"has no cls token \(looked for \[CLS\], <s>, <cls>\)"):
        load(save(built, tmp_path))
