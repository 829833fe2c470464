"""Values as JSON: how a user's types are encoded, checked and read back."""
