"""Masked rows as the encoder sees them, and the shares that a masking policy achieves."""
