"""Arms x seeds -> what is missing is run, differences are paired, tested and given a verdict."""
