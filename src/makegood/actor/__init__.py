"""What every actor has: how it meets an exception that nobody expected."""
