"""Speed, side by side with named peers, in one run."""
