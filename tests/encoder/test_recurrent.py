"""The bidirectional LSTM body: rows apart, both sides seen, cost by hand, initial values."""

from dataclasses import replace

import pytest
import torch

from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig, flops_per_token
from ablate.encoder.encoder import Encoder
from ablate.encoder.initialization import initialize
from ablate.encoder.recurrent import TimeMajor
from ablate.inputs.batches import collate

CONFIG = EncoderConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=16, position_embedding="none", body="lstm", init_std=0.4,
)  # fmt: skip
A, B = [2, 5, 6, 3], [2, 7, 8, 9, 10, 3]


def encoder_of(**options):
    config = replace(CONFIG, **options)
    backend = resolve("sdpa", device="cpu", dtype=torch.float32, max_length=16)
    encoder = Encoder(config, backend)
    initialize(encoder, config, lambda name: sum(name.encode()))
    return encoder.eval()


def run(encoder, *rows):
    batch = collate([i for row in rows for i in row], [len(row) for row in rows])
    return encoder(
        batch.input_ids,
        token_type_ids=batch.token_type_ids,
        position_ids=batch.position_ids,
        cu_seqlens=batch.cu_seqlens,
        max_seqlen=batch.max_seqlen,
    )


def test_time_major_by_hand():
    order = TimeMajor.of(torch.tensor([0, 2, 2, 5], dtype=torch.int32))  # rows of 2, 0 and 3
    assert order.tokens.tolist() == [2, 0, 3, 1, 4]
    assert order.batch_sizes.tolist() == [2, 2, 1]
    assert order.places.tolist() == [1, 3, 0, 2, 4]


@pytest.mark.parametrize("norm_position", ["post", "pre", "sandwich"])
@pytest.mark.parametrize("shared_layers", ["none", "all"])
def test_rows_do_not_see_each_other(norm_position, shared_layers):
    encoder = encoder_of(norm_position=norm_position, shared_layers=shared_layers)
    out = run(encoder, A, B, [2], A)
    torch.testing.assert_close(out[4:10], run(encoder, B), atol=1e-5, rtol=0)
    torch.testing.assert_close(out[10:11], run(encoder, [2]), atol=1e-5, rtol=0)
    torch.testing.assert_close(out[11:], out[:4], atol=1e-5, rtol=0)
    assert torch.equal(run(encoder, [2, 9, 9, 3], B, [2], A)[4:], out[4:])


def test_every_token_sees_both_sides_of_its_row():
    encoder = encoder_of()
    before = run(encoder, A, B)
    for place in range(4, 10):
        ids = [*A, *B]
        ids[place] = 15
        moved = (run(encoder, ids[:4], ids[4:]) - before).abs().sum(1).nonzero().flatten()
        assert moved.tolist() == [4, 5, 6, 7, 8, 9]


def test_a_layer_is_torchs_lstm_and_a_residual():
    encoder = encoder_of(num_hidden_layers=1, norm_position="pre", embedding_norm=False)
    ids = torch.tensor(A)
    x = encoder.embeddings(ids, ids * 0, ids * 0, 4)
    layer = encoder.layers[0]
    plain = torch.nn.LSTM(8, 4, bidirectional=True)
    plain.load_state_dict(layer.lstm.state_dict())
    torch.testing.assert_close(run(encoder, A), x + plain(layer.lstm_norm(x)[:, None])[0][:, 0])


def test_biases_begin_at_0_and_forget_gates_at_1():
    for name, parameter in encoder_of().layers[1].lstm.named_parameters():
        if "bias" in name:
            forget = 1.0 if "_ih_" in name else 0.0
            assert parameter.view(4, 4).tolist() == [[0.0] * 4, [forget] * 4, [0.0] * 4, [0.0] * 4]
        else:
            assert 0.2 < parameter.std() < 0.6


def test_flops_by_hand():
    # a direction: 4 gates of 4 units read 8 inputs and 4 states, each a product and a sum
    assert flops_per_token(CONFIG, 10, predict_rate=0) == 2 * 2 * (2 * 4 * 4 * (8 + 4))


def test_bfloat16_is_close_and_trains():
    encoder = encoder_of(init_std=0.1)
    expected = run(encoder, A, B)
    with torch.autocast("cpu", torch.bfloat16):
        out = run(encoder, A, B)
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0)
    out.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in encoder.layers.parameters())


def test_dropout_acts_in_training_only_and_the_global_generator_stays():
    state = torch.random.get_rng_state()
    encoder = encoder_of(hidden_dropout=0.5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(run(encoder, A), run(encoder, A))
    encoder.train()
    assert not torch.equal(run(encoder, A), run(encoder, A))


def test_no_tokens_give_no_states():
    empty = torch.zeros(0, dtype=torch.long)
    bounds = torch.zeros(1, dtype=torch.int32)
    out = encoder_of()(
        empty, token_type_ids=empty, position_ids=empty, cu_seqlens=bounds, max_seqlen=0
    )
    assert out.shape == (0, 8)
