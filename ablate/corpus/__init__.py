"""Documents from files, the hub or the built-in language; documents -> sentences."""
