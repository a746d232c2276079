"""What people write becomes a Program here: traced Python functions, Frontend JSON and Tiny JSON files."""

from . import functions
from .frontend_json import load_frontend
from .load import load
from .trace import Spec, spec, trace, trace_document

__all__ = ["Spec", "functions", "load", "load_frontend", "spec", "trace", "trace_document"]
