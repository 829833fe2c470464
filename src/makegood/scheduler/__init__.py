"""The Scheduler: decides what follows from what has happened, commits it, and dispatches steps to agents."""
