"""The command line of `ablate.bench`: help, bad input, a worker that dies."""

import os
import subprocess
import sys

import pytest

from ablate.bench import processes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["speed"], "'speed' is not one of "),
        (["inputs", "--fast"], "unrecognized arguments: --fast"),
        (["inputs", "--repeats", "x"], "argument --repeats: invalid int value: 'x'"),
        (["inputs", "--repeats", "0"], "--repeats 0 must be at least 1"),
        (["inputs", "--only", "word"], "--only word: allowed are token_64x128"),
        (["inputs", "--corpus", "no.txt"], "--corpus=no.txt does not exist"),
        (["planning", "--rows", "0"], "--rows 0 must be at least 1"),
        (["planning", "--only", "pairs"], "--only pairs: allowed are segment_pair"),
        (["encoder", "--only", ","], "--only ',' names no row"),
        (["encoder", "--only", ""], "--only '' names no row"),
        (["inputs", "--only", ",,"], "--only ',,' names no row"),
        (["planning", "--only", ","], "--only ',' names no row"),
        (["encoder", "--only", "A_default", "--figure", "x.svg"], "no effect on --figure"),
        (["store", "--megabytes", "0"], "--megabytes 0.0 must be above 0"),
        (["store", "--megabytes", "1e12"], "MB of temporary disk"),
        (["store", "--jobs", "0"], "--jobs 0 must be at least 1"),
    ],
)
def test_bad_input_is_one_message_and_code_2(bench, arguments, said):
    code, out, err = bench(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "type" in err or "give" in err
    assert err.count("\n") == 1


def test_help_is_quick_and_without_torch():
    code = (
        "import sys; sys.argv = ['ablate.bench', '--help']\n"
        "from ablate.bench.__main__ import main\n"
        "assert main() == 0\n"
        "assert not {'torch', 'numpy', 'hydra', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "planning" in done.stdout


def test_a_killed_process_is_an_error_and_not_a_wait():
    with pytest.raises(ValueError, match="_exit was killed"):
        processes.run_alone(os._exit, 1)
