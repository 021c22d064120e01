"""Store -> plan of rows -> masked batches."""
