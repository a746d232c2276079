"""Programs, Regions and the e-graph's chosen classes as drawings: DOT for Graphviz, Mermaid for Markdown.

What enters: a Program, an Extracted, chosen classes. What leaves: text. Nothing is run to make a picture of it.
"""

from __future__ import annotations

from .classes import draw_classes
from .drawing import LIMIT
from .program import draw_program
from .regions import draw_regions

__all__ = ["LIMIT", "draw_classes", "draw_program", "draw_regions"]
