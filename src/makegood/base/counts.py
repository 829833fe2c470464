"""Numbers of things in words."""


def quantity(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things in words; a plural that is not given ends in "s", or "es".

    >>> quantity(1, "workflow"), quantity(1000, "agent"), quantity(2, "person", "people")
    ('1 workflow', '1,000 agents', '2 people')
    """
    plural_noun = plural or f"{noun}{'es' if noun.endswith(('s', 'x')) else 's'}"
    return f"{number:,} {noun if number == 1 else plural_noun}"


def up_to(number: int, most: int) -> int | str:
    """Return a number for a table, if things were counted up to ``most`` and one more.

    >>> up_to(1000, 1000), up_to(1001, 1000)
    (1000, 'more than 1,000')
    """
    return f"more than {most:,}" if number > most else number
