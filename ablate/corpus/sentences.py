"""One document -> its sentences.

A line break always ends a sentence, and so does `.`, `!` or `?` (with the closing quotes and
brackets after it) before a blank. Abbreviations are split too ("Mr. | Darcy"): the rule is the same
for every language and arm and costs one pass of a regular expression. A line break is LF, CR LF or
CR and nothing else (not U+2028 or U+0085, where `str.splitlines` would cut).
"""

from __future__ import annotations

import re

_END = re.compile(r"([.!?][.!?\"'”’»)\]]*)[^\S\r\n]+")


def split_sentences(document: str) -> list[str]:
    """Sentences in order, without blanks at their ends; never an empty string."""
    parts = _END.split(document)  # text, what ended it, text, what ended it, text
    parts[1::2] = [end + "\n" for end in parts[1::2]]  # `sub` with a group is three times slower
    lines = "".join(parts).replace("\r", "\n").split("\n")
    return [sentence for line in lines if (sentence := line.strip())]
