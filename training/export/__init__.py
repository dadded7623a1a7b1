"""From a head and its backbone to a published artifact, without torch."""
