"""The records that every other room shares, and their states: tasks, steps, plans, requests, messages,
decisions.

Any room above ``payload`` may import any module here. Records are frozen data; nothing here does I/O.
"""
