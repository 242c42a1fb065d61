"""Sphinx: ``sphinx-build -W -b html docs docs/_build``, with the extra ``docs`` installed."""

import snmf_dist

project = "snmf_dist"
author = "The snmf_dist developers"
copyright = "2026, the snmf_dist developers"
release = version = snmf_dist.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_title = f"snmf_dist {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # the docstrings say the types
numpydoc_show_class_members = False
numpydoc_show_inherited_class_members = False
