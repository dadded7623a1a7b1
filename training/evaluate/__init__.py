"""How well the similarities agree with people."""
