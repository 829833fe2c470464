"""What users declare about services: agents, actions, inboxes, and what a call may answer.

Rooms above may import any module here; ``RECORDER`` connects a call of an action to the plan that
``workflow`` is building.
"""
