"""What pages show: one module for each, which reads it from the store and knows nothing of HTTP."""
