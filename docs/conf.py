"""Settings of the documentation site: `make docs`."""

import runpy
from pathlib import Path

import ggpm

HERE = Path(__file__).parent

project, author, release = "ggpm", "The ggpm developers", ggpm.__version__
copyright = "the ggpm developers"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "**/*.ipynb", "gallery/*.py", "gallery/**/*.json", "gallery/sg_execution_times.rst"]
nitpicky = False
# words of the types of parameters, such as (low, high), are also attributes of several classes
suppress_warnings = ["config.cache", "ref.python"]
templates_path = ["_templates"]

# ---- pages ---------------------------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
# links to files of the repository that are no pages of the site
myst_url_schemes = ["http", "https", "mailto"]

html_theme = "pydata_sphinx_theme"
html_title = "ggpm"
html_static_path = ["_static"]
html_css_files = ["ggpm.css"]
html_js_files = ["ggpm.js"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "start": []}
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None

# ---- reference -------------------------------------------------------------------------------------------------------
autosummary_generate = True
autosummary_imported_members = False
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": False, "show-inheritance": True}
autodoc_member_order = "bysource"
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
default_role = "code"

# ---- gallery ---------------------------------------------------------------------------------------------------------
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "backreferences_dir": "gallery/uses",
    "doc_module": ("ggpm",),
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1000,
    "within_subsection_order": "FileNameSortKey",
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "copyfile_regex": r"",
}

runpy.run_path(str(HERE / "inside.py"))["write"]()
runpy.run_path(str(HERE / "pictures.py"))["draw_all"](HERE / "_static" / "outputs")
runpy.run_path(str(HERE / "plot_gallery.py"))["draw_all"](HERE / "_static" / "plots")


# ---- docstrings are plain text, read in terminals first -------------------------------------------------------------
def escape_bars(app, what, name, obj, options, lines):
    """Absolute values and determinants are no substitutions."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|") for line in lines]


def skip_requests(app, what, name, obj, skip, options):
    """Methods that scikit-learn makes for metadata routing, with links into its own pages."""
    return True if name.startswith("set_") and name.endswith("_request") else skip


def setup(app):
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-skip-member", skip_requests)
