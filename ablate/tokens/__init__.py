"""Text -> token ids in a flat memory-mapped store."""
