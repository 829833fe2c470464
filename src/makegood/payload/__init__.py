"""Values as JSON: how a user's types are encoded, checked and read back.

Any room above ``base`` may import any module here. Everything that encodes or decodes a user's value goes
through ``codec``.
"""
