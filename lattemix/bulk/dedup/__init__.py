"""`lattemix dedup`: remove near-duplicates from files of any size.

Texts become vectors, close vectors become candidate pairs, candidates get exact scores, and these
decide which rows are kept. A work directory holds the results of each stage, so that an interrupted
run continues, and a run with another threshold does not compute them again.
"""
