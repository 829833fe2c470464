"""What users write about services: agents, actions, inboxes, and what a call may answer."""
