"""Speed and memory of Latte-Mix, measured side by side with other libraries and servers."""
