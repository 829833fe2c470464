"""What a task's rows mean, for people: what happened, what is in place, what comes next, what can be done.

The answers are typed; the console, the command line and errors draw them.
"""
