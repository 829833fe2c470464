"""The records and their states: tasks, steps, plans, requests, messages, decisions. Frozen data, no I/O."""
