"""Files in, files out: read, encode or score, write."""
