"""The tables of the paper, and their reproduction."""
