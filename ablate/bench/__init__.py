"""Throughput and memory of the data's path, measured against Hugging Face and against bars."""
