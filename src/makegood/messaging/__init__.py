"""To and from applications and operators: inboxes, outboxes, notices and alerts."""
