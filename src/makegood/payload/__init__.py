"""Values as JSON: how a user's types are encoded, checked and read back.

Rooms above ``model`` may import any module here. Everything that encodes or decodes a user's value goes
through ``codec``.
"""
