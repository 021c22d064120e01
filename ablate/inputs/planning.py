"""The sequential loops behind `formats.plan_epoch`, written so that numba can compile them.

Documents are given in training order as ranges [first, last) of sentence numbers; sentence s is
the token range [sentence_starts[s], sentence_starts[s + 1]). Plain Python runs the same code, and
tests compare the two.
"""

from __future__ import annotations

import numpy as np

from ablate.inputs.pairs import NO_PAIR, RANDOM, SWAPPED


def pair_rows(  # type: ignore[no-untyped-def]
    generator, sentence_starts, first, last, max_length, short_seq_prob, kinds, exact, by_sentence
):
    """Rows of two segments (Devlin et al. 2019, `create_pretraining_data`; Lan et al. 2019).

    A chunk of consecutive sentences is filled up to a target - max_length - 3 tokens or, for a
    share `short_seq_prob` of the documents, a random number from 2 to that - and cut at a random
    sentence into A and B; `by_sentence` makes it two sentences (RoBERTa's SENTENCE-PAIR), where the
    target only cuts. The pair is one of `kinds`, drawn independently; for `exact` with chances that
    make up for the chunks that had no choice, and that lean slowly to the kinds with fewer rows:
    equal shares, and hardly a hint in the rows before. A random B comes from another document,
    never the same by exhaustion of tries as in the original, and the sentences it displaced are put
    back. A chunk of one sentence is random or, where `kinds` has no random, a row of one segment
    (ALBERT's code takes a random B and calls it swapped). What is too long loses tokens from the
    longer side, each from a random end.

    Returns slice starts and stops (S,), row starts (R + 1,), kinds (R,), and numbers of tokens:
    dropped (cut off at their own place), shown of random partners, cut off random partners.
    """
    num_documents = len(first)
    has_random = False
    for k in kinds:
        has_random = has_random or k == RANDOM
    room = max_length - 3
    capacity = 0
    for d in range(num_documents):
        capacity += last[d] - first[d]
    starts = np.empty(2 * capacity, dtype=np.int64)
    stops = np.empty(2 * capacity, dtype=np.int64)
    row_starts = np.empty(capacity + 1, dtype=np.int64)
    row_kinds = np.empty(capacity, dtype=np.int64)
    made = np.zeros(3, dtype=np.int64)
    weights = np.zeros(3)
    memory = min(max(capacity // 50, 4), 200)
    forced = 0
    row_starts[0] = 0
    slices, rows, dropped, shown, partner_cut = 0, 0, 0, 0, 0
    for d in range(num_documents):
        target = room
        if short_seq_prob > 0.0 and generator.random() < short_seq_prob:
            target = 2 + int(generator.random() * (room - 1))
        position = first[d]
        while position < last[d]:
            stop = position + 1
            if by_sentence:
                stop = min(position + 2, last[d])
            else:
                size = sentence_starts[stop] - sentence_starts[position]
                while stop < last[d] and size < target:
                    stop += 1
                    size = sentence_starts[stop] - sentence_starts[position]
            if stop - position == 1:
                kind = RANDOM if has_random else NO_PAIR
                forced += 1
            elif exact:
                total = 0.0
                for k in kinds:
                    weights[k] = 1.0 / len(kinds) + (rows / len(kinds) - made[k]) / memory
                    if k == RANDOM and rows > 0:
                        weights[k] -= forced / rows
                    weights[k] = max(weights[k], 0.0)
                    total += weights[k]
                draw = generator.random() * total
                kind = kinds[len(kinds) - 1]
                for k in kinds[:-1]:
                    if draw < weights[k]:
                        kind = k
                        break
                    draw -= weights[k]
            else:
                kind = kinds[int(generator.random() * len(kinds))]
            cut = stop
            if stop - position > 1:
                cut = position + 1 + int(generator.random() * (stop - position - 1))
            a_start, a_stop = sentence_starts[position], sentence_starts[cut]
            b_start, b_stop = a_stop, sentence_starts[stop]
            if kind == RANDOM:
                other = int(generator.random() * (num_documents - 1))
                if other >= d:
                    other += 1
                begin = first[other] + int(generator.random() * (last[other] - first[other]))
                end = begin + 1
                wanted = 0 if by_sentence else target - (a_stop - a_start)
                while end < last[other] and sentence_starts[end] - sentence_starts[begin] < wanted:
                    end += 1
                b_start, b_stop = sentence_starts[begin], sentence_starts[end]
            limit = target if by_sentence else room
            if kind == NO_PAIR:
                limit += 1  # one [SEP] less
            while (a_stop - a_start) + (b_stop - b_start) > limit:
                front = generator.random() < 0.5
                a_is_longer = a_stop - a_start > b_stop - b_start
                if kind == RANDOM and not a_is_longer:
                    partner_cut += 1
                else:
                    dropped += 1
                if a_is_longer and front:
                    a_start += 1
                elif a_is_longer:
                    a_stop -= 1
                elif front:
                    b_start += 1
                else:
                    b_stop -= 1
            if kind == RANDOM:
                shown += b_stop - b_start
            if kind == SWAPPED:
                a_start, b_start = b_start, a_start
                a_stop, b_stop = b_stop, a_stop
            starts[slices], stops[slices] = a_start, a_stop
            slices += 1
            if kind != NO_PAIR:
                starts[slices], stops[slices] = b_start, b_stop
                slices += 1
                made[kind] += 1
            row_kinds[rows] = kind
            rows += 1
            row_starts[rows] = slices
            position = cut if kind == RANDOM else stop
    tokens = (dropped, shown, partner_cut)
    return starts[:slices], stops[:slices], row_starts[: rows + 1], row_kinds[:rows], tokens


def stream_rows(  # type: ignore[no-untyped-def]
    generator, sentence_starts, first, last, max_length, short_seq_prob, shortest,
    across_documents, cut_sentences,
):  # fmt: skip
    """Rows of one stream, no token lost.

    Whole sentences fill a row up to its limit ([CLS] and one [SEP] a slice included): `max_length`,
    or for a share `short_seq_prob` of the rows a random number from `shortest` to that. A sentence
    longer than its row's limit is cut into rows. `across_documents` lets a row go on with the next
    document (RoBERTa's FULL-SENTENCES; False = DOC-SENTENCES); `cut_sentences` cuts at the token
    that fills the row, wherever it falls (the `single_document` rows of validation).

    Returns slice starts and stops (S,), row starts (R + 1,), and the number of documents that no
    slice holds whole.
    """
    starts = np.empty(1024, dtype=np.int64)
    stops = np.empty(1024, dtype=np.int64)
    row_starts = np.empty(1025, dtype=np.int64)
    row_starts[0] = 0
    slices, rows, documents_cut = 0, 0, 0
    length = 1  # of the open row, [CLS] included
    limit = 0  # of the open row; 0 = not drawn yet
    for d in range(len(first)):
        slices_before = slices
        open_slice = False
        for s in range(first[d], last[d]):
            begin = sentence_starts[s]
            end = sentence_starts[s + 1]
            while begin < end:
                if limit == 0:
                    limit = max_length
                    if short_seq_prob > 0.0 and generator.random() < short_seq_prob:
                        limit = shortest + int(generator.random() * (max_length - shortest + 1))
                separator = 0 if open_slice else 1
                space = limit - length - separator
                if space <= 0 or (end - begin > space and not cut_sentences and length > 1):
                    rows += 1
                    row_starts[rows] = slices
                    length, limit = 1, 0
                    open_slice = False
                    continue
                taken = min(end - begin, space)
                if not open_slice:
                    if slices == len(starts):  # twice the room
                        longer = np.empty(2 * slices, dtype=np.int64)
                        longer[:slices] = starts
                        starts = longer
                        longer = np.empty(2 * slices, dtype=np.int64)
                        longer[:slices] = stops
                        stops = longer
                        longer = np.empty(2 * slices + 1, dtype=np.int64)
                        longer[: rows + 1] = row_starts[: rows + 1]
                        row_starts = longer
                    starts[slices] = begin
                    slices += 1
                    open_slice = True
                stops[slices - 1] = begin + taken
                length += taken + separator
                begin += taken
        documents_cut += slices - slices_before > 1
        if not across_documents and length > 1:
            rows += 1
            row_starts[rows] = slices
            length, limit = 1, 0
    if length > 1:
        rows += 1
        row_starts[rows] = slices
    return starts[:slices], stops[:slices], row_starts[: rows + 1], documents_cut
