"""The commands of ``tinyc``, one module each. A module has ``add(subparsers)``, which declares its arguments.

A command is a function ``(args, settings) -> exit status``. It prints through ``console``, writes through
``files``, and raises TinycError; ``tinyc.cli`` does the rest.
"""
