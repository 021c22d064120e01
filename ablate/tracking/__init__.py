"""The run record and its mirrors."""
