"""A workflow function becomes a plan: it runs once, on promises, and what it calls is recorded."""
