import numpy as np

from ablate.inputs.batches import collate, from_segments, ragged_arange


def test_positions_count_from_zero_in_each_row():
    batch = collate(np.array([2, 5, 6, 3, 2, 7, 3]), np.array([4, 3]))
    assert batch.position_ids.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert batch.cu_seqlens.tolist() == [0, 4, 7]
    assert (batch.max_seqlen, batch.num_rows, batch.num_tokens) == (4, 2, 7)
    assert batch.num_predictions == 0


def test_pairs_have_types_and_separators():
    batch, cut = from_segments([[[5, 6], [7]], [[8]]], cls_token_id=2, sep_token_id=3, max_length=9)
    assert batch.input_ids.tolist() == [2, 5, 6, 3, 7, 3, 2, 8, 3]
    assert batch.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert cut == 0


def test_a_long_pair_is_cut_at_the_longer_side_and_counted():
    batch, cut = from_segments(
        [[[5, 6, 7, 8, 9], [10, 11]]], cls_token_id=2, sep_token_id=3, max_length=8
    )
    assert batch.input_ids.tolist() == [2, 5, 6, 7, 3, 10, 11, 3]
    assert cut == 2


def test_ragged_arange():
    assert ragged_arange(np.array([2, 0, 3])).tolist() == [0, 1, 0, 1, 2]
    assert ragged_arange(np.array([], dtype=int)).tolist() == []
