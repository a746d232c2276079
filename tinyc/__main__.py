"""``python -m tinyc`` is the command ``tinyc``."""

from tinyc.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
