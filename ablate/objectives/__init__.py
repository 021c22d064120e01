"""Hidden states -> (loss sum, count) and named metrics."""
