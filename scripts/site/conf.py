"""How Sphinx builds the site; see ``scripts/site/__main__.py``."""

import inspect
from importlib.metadata import version as installed
from typing import Any

from sphinx.application import Sphinx

from scripts.site.fields import split
from scripts.site.pages import DOCS, PROJECT, SOURCE

project = "makegood"
author = "the makegood authors"
release = installed("makegood")
version = ".".join(release.split(".")[:2])
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = "index"
html_theme = "furo"
html_title = f"makegood {version}"
html_extra_path = ["extra"]
exclude_patterns = ["extra"]
html_css_files = ["site.css"]
html_static_path = ["_static"]
html_theme_options = {
    "footer_icons": [],
    "light_css_variables": {"font-stack--monospace": "ui-monospace, 'SF Mono', Menlo, Consolas, monospace"},
}
html_show_sphinx = html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_context = {"description": PROJECT["description"], "versions": [version]}
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html", "sidebar/search.html", "sidebar/scroll-start.html", "sidebar/navigation.html", "versions.html",
        "sidebar/scroll-end.html",
    ]
}  # fmt: skip
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
copybutton_exclude = ".linenos, .gp"
highlight_language = "text"  # of a block that names none
pygments_style, pygments_dark_style = "friendly", "github-dark"


def with_fields(_app: Sphinx, what: str, _name: str, one: Any, _options: Any, lines: list[str]) -> None:
    """Show what a docstring says of parameters, results and errors as fields."""
    try:
        parameters = [*inspect.signature(one).parameters] if what in ("class", "method", "function") else []
    except (TypeError, ValueError):
        parameters = []
    lines[:] = split(lines, parameters)


def with_signature(
    _app: Sphinx, what: str, _name: str, _one: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Show no parameters of a class that only makegood itself makes: those are private."""
    private = what == "class" and signature is not None and signature.startswith(("(_", "(world: "))
    return ("" if private else signature), returns


def with_source(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Link each page of docs/ to its own file; generated pages have none."""
    file = DOCS / f"{page}.md"
    if page.endswith("/index"):
        file = file.with_name("README.md")
    if file.exists():
        context["theme_source_view_link"] = f"{SOURCE}/blob/main/{file.relative_to(DOCS.parent).as_posix()}"


def setup(app: Sphinx) -> None:
    """Connect them."""
    app.connect("autodoc-process-signature", with_signature)
    app.connect("autodoc-process-docstring", with_fields)
    app.connect("html-page-context", with_source)
