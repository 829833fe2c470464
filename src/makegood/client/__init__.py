"""For applications: submit tasks, wait for them, operate on them; the same for blocking code."""
