"""Masked-language-model ablations with paired arms, records and honest statistics.

`python -m ablate` is the entry point; the parts are usable from Python one by one.
"""

__version__ = "0.1.0"
