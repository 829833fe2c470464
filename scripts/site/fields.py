"""From a docstring's prose to the lists of the API reference: parameters, what is returned, what is raised.

Docstrings say ``name``: what it is, in running text or in a list, and "Returns …", "Raises ``Error`` if …".
The reference shows these as fields, below what is left of the prose.
"""

import re
from collections.abc import Collection, Iterator, Sequence

_ERROR = r"``(?:mg\.)?(\w+)``"
_SENTENCE = re.compile(r"(?:(?<=\. )|(?<=\) )|^)(Raises|Returns) (?=``|[a-zA-Z\"])")
_NEXT_ERROR = re.compile(rf"(?:,? (?:and|or) |, ){_ERROR}")


def split(lines: Sequence[str], parameters: Collection[str]) -> list[str]:
    """Return the lines of a docstring with fields in place of what describes parameters, results and errors.

    >>> split(["Wait. ``timeout``: seconds. Raises ``ClosedError`` if it was closed."], ["timeout"])
    ['Wait.', '', ':param timeout: seconds.', ':raises ClosedError: if it was closed.']
    """
    prose: list[str] = []
    fields: list[str] = []
    for block in _blocks(lines):
        if block[0].startswith((" ", ">>>")):
            prose += [*([".. code-block:: python", ""] if block[0].startswith(" ") else []), *block, ""]
            continue
        items = _items(block) if block[0].startswith("- ") else [" ".join(line.strip() for line in block)]
        left = [rest for item in items if (rest := _taken(item, parameters, fields))]
        is_item = block[0].startswith("- ")
        prose += [f"- {rest}" if is_item else re.sub("::$", ":", rest) for rest in left]
        prose += [""] if left else []
    in_order = sorted(fields, key=lambda field: "pr".index(field[1]) * 2 + field.startswith(":raises"))
    return [*prose, *in_order] if in_order else prose[:-1]


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield paragraphs."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def _items(block: Sequence[str]) -> list[str]:
    """Return the items of a list."""
    items: list[str] = []
    for line in block:
        if line.startswith("- "):
            items.append(line[2:].strip())
        else:
            items[-1] += " " + line.strip()
    return items


def _taken(text: str, parameters: Collection[str], fields: list[str]) -> str:
    """Move what describes parameters, results and errors to ``fields``; return the rest."""
    parts = _SENTENCE.split(text)
    rest = _parameters(parts[0], parameters, fields)
    for verb, said in zip(parts[1::2], parts[2::2], strict=True):
        if verb == "Returns":
            fields.append(f":returns: {_parameters(said, parameters, fields)}")
        else:
            fields += _errors(said)
    return rest


def _parameters(text: str, parameters: Collection[str], fields: list[str]) -> str:
    """Move what describes parameters to ``fields``; return the rest."""
    names = "|".join(map(re.escape, parameters))
    if not names:
        return text
    parts = re.split(rf"(?:^|(?<=[.;)] ))``({names})``(?:: | is )", text)
    for name, said in zip(parts[1::2], parts[2::2], strict=True):
        fields.append(f":param {name}: {said.strip().rstrip(';')}")
    return parts[0].strip()


def _errors(said: str) -> list[str]:
    """Return a field for each error; errors that are named together share their text."""
    first = re.match(_ERROR, said)
    if first is None:
        return [f":raises: {said}"]
    parts = _NEXT_ERROR.split(said[first.end() :])
    names, texts = (
        [first[1], *parts[1::2]],
        ["" if part == "." else part.strip(" :,") for part in parts[0::2]],
    )
    for at in range(len(texts) - 2, -1, -1):
        texts[at] = texts[at] or texts[at + 1]
    return [f":raises {name}: {text}" for name, text in zip(names, texts, strict=True)]
