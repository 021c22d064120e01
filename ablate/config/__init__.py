"""Typed settings, the rules that hold between groups, and the fingerprint of a run."""
