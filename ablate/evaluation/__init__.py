"""Fine-tuning, minimal pairs, metrics; per-example predictions and aggregation rules."""
