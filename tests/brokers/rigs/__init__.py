"""The brokers that the suites of sources and senders run on."""
