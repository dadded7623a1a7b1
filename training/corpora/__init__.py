"""Public corpora as text, one sentence per line: WordNet, Wikipedia, SNLI."""
