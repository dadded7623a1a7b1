"""Agreement of similarities with human scores."""
