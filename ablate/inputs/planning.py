"""The sequential loops behind `formats.plan_epoch`, written so that numba can compile them.

Documents are given in training order as ranges [first, last) of sentence numbers; sentence s is
the token range [sentence_starts[s], sentence_starts[s + 1]). Plain Python runs the same code, and a
test compares the two.
"""

from __future__ import annotations

import numpy as np


def segment_pairs(generator, sentence_starts, first, last, room, short_seq_prob):  # type: ignore[no-untyped-def]
    """BERT's pairs (Devlin et al. 2019, `create_pretraining_data`): two segments of sentences.

    A chunk of consecutive sentences is filled up to a target (`room` tokens, or a random shorter
    one with `short_seq_prob`), cut at a random sentence into A and B; with probability 1/2, or when
    the chunk has one sentence, B comes from another document and the sentences it displaced are put
    back. Unlike the original, the other document is never the same one by exhaustion of tries.
    A pair over `room` loses tokens from the longer side, each from a random end.

    Returns slice starts and stops (2R,), labels (R,) with 1 = random, the tokens dropped (cut off
    at their own place; a random partner may still show one), and those cut off random partners.
    """
    num_documents = len(first)
    capacity = 1
    for d in range(num_documents):
        capacity += last[d] - first[d]
    starts = np.empty(2 * capacity, dtype=np.int64)
    stops = np.empty(2 * capacity, dtype=np.int64)
    labels = np.empty(capacity, dtype=np.int64)
    rows = 0
    dropped = 0
    partner_cut = 0
    for d in range(num_documents):
        position = first[d]
        while position < last[d]:
            target = room
            if generator.random() < short_seq_prob:
                target = 2 + int(generator.random() * (room - 1))
            stop = position + 1
            while stop < last[d] and sentence_starts[stop] - sentence_starts[position] < target:
                stop += 1
            cut = stop
            if stop - position >= 2:
                cut = position + 1 + int(generator.random() * (stop - position - 1))
            a_start = sentence_starts[position]
            a_stop = sentence_starts[cut]
            if stop - position == 1 or generator.random() < 0.5:
                other = int(generator.random() * (num_documents - 1))
                if other >= d:
                    other += 1
                begin = first[other] + int(generator.random() * (last[other] - first[other]))
                wanted = max(target - (a_stop - a_start), 1)
                end = begin + 1
                while end < last[other] and sentence_starts[end] - sentence_starts[begin] < wanted:
                    end += 1
                labels[rows] = 1
                position = cut
            else:
                begin = cut
                end = stop
                labels[rows] = 0
                position = stop
            b_start = sentence_starts[begin]
            b_stop = sentence_starts[end]
            while (a_stop - a_start) + (b_stop - b_start) > room:
                front = generator.random() < 0.5
                if a_stop - a_start > b_stop - b_start or labels[rows] == 0:
                    dropped += 1
                else:
                    partner_cut += 1
                if a_stop - a_start > b_stop - b_start:
                    if front:
                        a_start += 1
                    else:
                        a_stop -= 1
                elif front:
                    b_start += 1
                else:
                    b_stop -= 1
            starts[2 * rows] = a_start
            stops[2 * rows] = a_stop
            starts[2 * rows + 1] = b_start
            stops[2 * rows + 1] = b_stop
            rows += 1
    return starts[: 2 * rows], stops[: 2 * rows], labels[:rows], dropped, partner_cut


def sentence_streams(sentence_starts, first, last, max_length, across_documents, cut_sentences):  # type: ignore[no-untyped-def]
    """Rows of one stream, no token lost.

    Whole sentences fill a row up to `max_length` ([CLS] and one [SEP] a slice included); a sentence
    longer than a row is cut into rows. `across_documents` lets a row go on with the next document
    (RoBERTa's FULL-SENTENCES; False = DOC-SENTENCES); `cut_sentences` cuts at the token that fills
    the row, wherever it falls (the `single_document` rows of validation).

    Returns slice starts and stops (S,), row starts (R + 1,).
    """
    tokens = 0
    sentences = 0
    for d in range(len(first)):
        tokens += sentence_starts[last[d]] - sentence_starts[first[d]]
        sentences += last[d] - first[d]
    capacity = sentences + len(first) + 2 * (tokens // (max_length - 2)) + 2
    starts = np.empty(capacity, dtype=np.int64)
    stops = np.empty(capacity, dtype=np.int64)
    row_starts = np.empty(capacity + 1, dtype=np.int64)
    slices = 0
    rows = 0
    length = 1  # of the open row, [CLS] included
    row_starts[0] = 0
    for d in range(len(first)):
        open_slice = False
        for s in range(first[d], last[d]):
            begin = sentence_starts[s]
            end = sentence_starts[s + 1]
            while begin < end:
                separator = 0 if open_slice else 1
                space = max_length - length - separator
                fits = end - begin <= space
                fresh = length == 1
                if (not fits and not cut_sentences and not fresh) or space <= 0:
                    rows += 1
                    row_starts[rows] = slices
                    length = 1
                    open_slice = False
                    continue
                taken = min(end - begin, space)
                if open_slice:
                    stops[slices - 1] = begin + taken
                else:
                    starts[slices] = begin
                    stops[slices] = begin + taken
                    slices += 1
                    open_slice = True
                length += taken + separator
                begin += taken
        if not across_documents and length > 1:
            rows += 1
            row_starts[rows] = slices
            length = 1
    if length > 1:
        rows += 1
        row_starts[rows] = slices
    return starts[:slices], stops[:slices], row_starts[: rows + 1]
