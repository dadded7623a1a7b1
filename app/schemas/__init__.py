"""Request bodies; their descriptions and examples are the API's documentation."""
