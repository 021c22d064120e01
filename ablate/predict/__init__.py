"""Texts -> what a finished encoder would put at each place, for a person to read."""
