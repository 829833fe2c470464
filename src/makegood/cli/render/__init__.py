"""How the command line shows things: as styled lines, as plain text, as JSON."""
