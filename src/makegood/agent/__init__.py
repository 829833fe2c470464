"""The Agent: takes requests for one remote service, calls its actions and answers."""
