"""The API's requests and answers; their descriptions and examples are its documentation."""
