"""One arm x one seed, start to finish; the only package that sees the whole configuration."""
