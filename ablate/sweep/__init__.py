"""A W&B sweep file -> its points, run here with no server, and a report of them."""
