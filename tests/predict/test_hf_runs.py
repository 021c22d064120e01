"""What a run of `encoder=hf` was trained with is what is asked, whatever its file says by now."""

import json

import pytest

from ablate.predict.__main__ import main

FILE = {
    "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48,
}  # fmt: skip


@pytest.mark.parametrize("change", ["edited", "gone"])
def test_record_decides_and_not_the_file_of_today(trained, tmp_path, capsys, change):
    file, old = tmp_path / "config.json", {**FILE, "intermediate_size": 40 + len(change)}
    file.write_text(json.dumps(old))
    run = trained("encoder=hf", f"encoder.hf_config={file}", "nsp=true")

    def asked():
        code = main([str(run), "the [MASK]", "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)["rows"]

    before = asked()
    if change == "edited":
        new = {"num_attention_heads": 1, "hidden_act": "relu", "layer_norm_eps": 0.5}
        file.write_text(json.dumps({**old, **new}))
    else:
        file.unlink()
    assert asked() == before
