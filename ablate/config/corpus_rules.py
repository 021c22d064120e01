"""What the groups `corpus` and `tokenizer` may say."""

from __future__ import annotations

from ablate.config.limits import in_range, one_of, refuse_ignored
from ablate.config.schema import CorpusSettings, Settings, TokenizerSettings

CORPORA = ("synthetic", "files", "hub")
TOKENIZERS = ("wordpiece", "byte_bpe", "unigram", "pretrained")
WORD_ORDERS = ("natural", "shuffled")
VOCABULARIES = ("auto", "trained", "morphemes")
_HUB_ONLY = ("name", "config", "split", "revision", "streaming", "document_rule")
_CORPUS_UNUSED = {
    "synthetic": ("path", "text_field", "max_documents", *_HUB_ONLY),
    "files": (*_HUB_ONLY, "num_documents"),
    "hub": ("path", "num_documents"),
}
_TOKENIZER_UNUSED = {
    **dict.fromkeys(("wordpiece", "byte_bpe", "unigram"), ("path",)),
    "pretrained": ("vocab_size",),
}


def check_corpus_and_tokenizer(settings: Settings, vocabulary: str) -> None:
    """Corpus and tokenizer; `vocabulary` is `tokenizer.vocabulary` with auto resolved."""
    corpus, tokenizer = settings.corpus, settings.tokenizer
    one_of("corpus.kind", corpus.kind, CORPORA)
    refuse_ignored("corpus", corpus.kind, corpus, CorpusSettings(), _CORPUS_UNUSED, CORPORA)
    if corpus.kind == "files" and not corpus.path:
        raise ValueError("corpus=files needs a file: type corpus.path=text.jsonl (or a folder)")
    if corpus.kind == "hub" and not corpus.name:
        raise ValueError("corpus=hub needs a data set: type corpus.name=Salesforce/wikitext")
    one_of("corpus.word_order", corpus.word_order, WORD_ORDERS)
    in_range("corpus.validation_fraction", corpus.validation_fraction, 1e-6, 0.9, 0.01)
    in_range("corpus.num_documents", corpus.num_documents, 4, float("inf"), 14_000)
    if corpus.max_documents is not None:
        in_range("corpus.max_documents", corpus.max_documents, 2, float("inf"), 1000)
    if corpus.jobs is not None:
        in_range("corpus.jobs", corpus.jobs, 1, 1024, 2)
    one_of("tokenizer.kind", tokenizer.kind, TOKENIZERS)
    one_of("tokenizer.vocabulary", tokenizer.vocabulary, VOCABULARIES)
    refuse_ignored(
        "tokenizer", tokenizer.kind, tokenizer, TokenizerSettings(), _TOKENIZER_UNUSED, TOKENIZERS
    )
    if tokenizer.kind == "pretrained" and not tokenizer.path:
        raise ValueError("tokenizer=pretrained needs a file: type tokenizer.path=tokenizer.json")
    if vocabulary == "morphemes":
        if corpus.kind != "synthetic" or tokenizer.kind != "wordpiece":
            raise ValueError(
                "tokenizer.vocabulary=morphemes is the built-in language's WordPiece vocabulary: "
                "it needs corpus=synthetic tokenizer=wordpiece; type tokenizer.vocabulary=trained"
            )
        if not tokenizer.lowercase:
            raise ValueError(
                "tokenizer.lowercase=false has no effect on the built-in language, which is lower "
                "case; leave it out, or type tokenizer.vocabulary=trained"
            )
        if tokenizer.vocab_size is not None:
            raise ValueError(
                f"tokenizer.vocab_size={tokenizer.vocab_size} has no effect on "
                "tokenizer.vocabulary=morphemes; type tokenizer.vocabulary=trained, or leave "
                "tokenizer.vocab_size out"
            )
    if tokenizer.vocab_size is not None:
        in_range("tokenizer.vocab_size", tokenizer.vocab_size, 32, 2**20, 8192)
