"""Multi-step tasks across remote services that end whole: every step done, or every effect undone."""
