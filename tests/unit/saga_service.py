"""Remote services with books of their own, for the property runs of the rules.

They do what a request says when it reaches them, late or twice if the run wants it so; only what they have promised protects
them. K honours key and token, k a key only (``settle``), f a token and a fencing probe but no key, n neither.
"""

import collections


class Service:
    """A remote service with books. ``stands``: effects by key; ``answers``: what it remembers; ``high``: highest token."""

    def __init__(self, kind: str, *, harmless: bool, forgets: bool) -> None:
        self.kind = kind
        self.harmless = harmless
        self.forgets = forgets
        self.high = 0
        self.answers: dict[str, str] = {}
        self.stands: collections.Counter[str] = collections.Counter()
        self.keeps = 0.0
        """How long it remembers a key; 0: forever."""
        self.first: dict[str, float] = {}

    def arrives(self, key: str, now: float) -> bool:
        """Note that a request arrives; returns whether it still remembers the key, or never had it."""
        return not self.keeps or now < self.first.setdefault(key, now) + self.keeps

    def _superseded(self, token: int) -> bool:
        if self.kind not in "Kf":
            return False
        if token < self.high:
            return True
        self.high = token
        return False

    def do(self, key: str, token: int, how: str = "") -> str:
        """Carry out the action; ``how``: "refuse" it, or leave a "tombstone" for its key."""
        if self._superseded(token):
            return "superseded"
        remembers = self.kind in "Kk"
        if remembers and key in self.answers:
            return self.answers[key]
        if how == "tombstone" and not self.stands.get(key):
            self.answers[key] = "refused"
            return "refused"
        if how == "refuse":
            if self.kind == "k" and not self.forgets:
                self.answers[key] = "permanent"
            return "permanent"
        self.stands[key] += 1
        if remembers:
            self.answers[key] = "done"
        most = max(self.stands.values()) if self.harmless else sum(self.stands.values())
        assert most <= 1, f"double effect at {self.kind}"
        return "done"

    def undo(self, key: str, undoes: str, token: int) -> str:
        """Take back what was done under ``undoes``."""
        if self._superseded(token):
            return "superseded"
        if self.kind == "k" and key in self.answers:
            return "done"
        assert self.kind in "Kk" or undoes in self.stands, (
            "without keys, what never happened must not be undone"
        )
        self.stands[undoes] = 0
        if self.kind == "k":
            self.answers[key] = "done"
        return "done"

    def probe(self, key: str, token: int, *, fences: bool) -> str:
        """Say whether it happened."""
        if fences and self._superseded(token):
            return "superseded"
        return "happened" if self.stands.get(key) else "not_happened"

    def standing(self) -> int:
        """Return how many effects stand."""
        return sum(self.stands.values())
