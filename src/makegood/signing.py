"""The former home of ``mg.verified``; this module goes with 0.2."""

from makegood.base.webhook_signature import key_of, signature, verified

__all__ = ["key_of", "signature", "verified"]
