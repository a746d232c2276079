"""A page in a real browser: headless Chromium from the system's packages, its picture and what a script measures in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

MEASURE = """
<script>
window.faults = [];
addEventListener('error', event => faults.push(String(event.message)));
addEventListener('securitypolicyviolation', event => faults.push(event.violatedDirective + event.blockedURI));
addEventListener('load', () => {
  const page = document.documentElement, box = element => element.getBoundingClientRect();
  const within = (a, b) =>
    a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  const svg = document.querySelector('svg');
  const texts = svg ? [...svg.querySelectorAll('text')] : [];
  const named = texts.filter(text => text.classList.contains('name') || text.classList.contains('on'));
  const clipped = [...document.querySelectorAll('th,td,p,h1,h2,caption,li,summary')].filter(
    each => each.offsetParent && each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0);
  const style = getComputedStyle(document.querySelector('.tinyc-report'));
  const found = {
    dots: document.querySelectorAll('svg circle.kernel').length,
    outside: texts.filter(text => !within(box(text), box(svg))).map(text => text.textContent),
    covered: named.flatMap((one, number) => named.slice(number + 1)
      .filter(other => meet(box(one), box(other))).map(other => one.textContent + ' / ' + other.textContent)),
    clipped: clipped.map(each => each.textContent),
    wider: page.scrollWidth - page.clientWidth,
    tables: document.querySelectorAll('table').length,
    scripts: document.querySelectorAll('main script').length,
    ink: style.color, paper: style.backgroundColor,
    faults: window.faults,
  };
  const said = document.createElement('pre');
  said.id = 'measured';
  said.textContent = JSON.stringify(found);
  document.body.append(said);
});
</script>
"""
"""What the browser itself finds: text outside of the plot or on other text, cells and lines that are cut off, a page wider
than its window."""


def browser() -> str | None:
    """The browser's path, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Browser:
    """``folder``: for its profile and its files."""

    path: str
    folder: Path

    def measure(self, page: str, width: int = 1000, dark: bool = False) -> dict[str, Any]:
        """What :data:`MEASURE` finds on a page, and ``console``: what the browser's console said."""
        file = self.folder / "measured.html"
        file.write_text(page.replace("<head>", f"<head>{MEASURE}", 1), encoding="utf-8")
        result = self._run(file, width, dark, "--dump-dom", "--enable-logging=stderr", "--v=0")
        measured = re.search(r'<pre id="measured">(.*?)</pre>', result.stdout, re.DOTALL)
        assert measured, result.stderr
        found: dict[str, Any] = json.loads(unescape(measured[1]))
        found["console"] = [line for line in result.stderr.splitlines() if ":CONSOLE" in line]
        return found

    def picture(self, page: str, width: int = 1000, height: int = 1600, dark: bool = False) -> bytes:
        """The page as a PNG."""
        file, image = self.folder / "page.html", self.folder / "page.png"
        file.write_text(page, encoding="utf-8")
        self._run(file, width, dark, f"--screenshot={image}", height=height)
        return image.read_bytes()

    def _run(
        self, file: Path, width: int, dark: bool, *options: str, height: int = 1600
    ) -> subprocess.CompletedProcess[str]:
        command = [self.path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [
            "--disable-dev-shm-usage",
            "--virtual-time-budget=2000",
            f"--window-size={width},{height}",
        ]
        command += [f"--user-data-dir={self.folder / 'profile'}", "--no-first-run"]
        # the two schemes of a page: --force-dark-mode sets what it prefers
        command += ["--force-dark-mode"] if dark else []
        command += [*options, file.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
