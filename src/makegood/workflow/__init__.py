"""Turns a workflow function into a plan: it runs once, on promises, and its calls are recorded.

Other rooms import ``app``, ``workflow``, ``promise`` and ``verbs``; the other modules serve these.
"""
