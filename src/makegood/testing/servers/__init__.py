"""Real servers for tests: a private PostgreSQL, a forwarder that breaks connections, free ports."""
