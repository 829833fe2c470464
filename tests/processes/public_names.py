"""``python -m tests.processes.public_names``: write the public names of the makegood on the path, as JSON: members and parameters."""

import importlib
import inspect
import json
import sys

MODULES = ("makegood", "makegood.election", "makegood.testing")


def parameters(one: object) -> list[str]:
    """Return the names of what a function takes; of nothing else."""
    if not inspect.isfunction(one):
        return []
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in inspect.signature(one).parameters.values() if p.kind not in kinds]


def names() -> dict[str, list[str]]:
    """Return each public name, and each member of a class, with the parameters that it takes."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            one = getattr(module, name)
            found[f"{module.__name__}.{name}"] = parameters(one)
            for member in dir(one) if inspect.isclass(one) else ():
                if not member.startswith("_"):
                    found[f"{module.__name__}.{name}.{member}"] = parameters(getattr(one, member))
    return found


if __name__ == "__main__":
    json.dump(names(), sys.stdout)
