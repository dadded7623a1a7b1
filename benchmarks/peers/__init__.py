"""Other engines for the same backbone, in an environment of their own (`benchmarks/peers.txt`)."""
