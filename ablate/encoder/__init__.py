"""One encoder; BERT and ModernBERT are two values of its config."""
