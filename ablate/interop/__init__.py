"""Hugging Face names and weights on one side, ours on the other."""
