"""One module per part: `run` measures, `tables` formats the results."""
