"""Help for testing what is built on makegood. Nothing here runs in production."""
