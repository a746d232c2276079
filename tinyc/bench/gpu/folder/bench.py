"""Times the programs of this folder, which `tinyc bench gpu` made, beside torch and Triton on the first GPU: python bench.py

Needs numpy, cuda-bindings and the driver; torch, and Triton where it is installed, for somebody to compare with. Each result
is held against torch's in float64 before anything is timed (numpy's, without torch); a program that is wrong gets no time.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import platform
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SET, SET_VERSION = "tinyc benchmark set", 2
RESULTS, RESULTS_VERSION = "tinyc benchmark results", 2


class Unusable(Exception):
    """What was asked for cannot be done here; the text says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 where every program is right, 1 where one is not, 2 where nothing can be run as it was asked for."""
    args = _arguments(argv)
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    loader, run = importlib.import_module("loader"), importlib.import_module("run")
    try:
        benchmarks = read_set(HERE)
        chosen = select(benchmarks["entries"], args.only, args.quick)
        try:
            device = loader.Device()
        except loader.DriverError as error:
            raise Unusable(str(error)) from None
        check_device(benchmarks, device, loader)
    except Unusable as error:
        print(f"bench.py: {error}", file=sys.stderr)
        return 2
    peers = run.find_peers() if args.peers else run.Peers()
    gpu = gpu_facts(device)
    results: dict[str, Any] = {
        "format": RESULTS,
        "version": RESULTS_VERSION,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": " ".join(["python bench.py", *(sys.argv[1:] if argv is None else argv)]),
        "gpu": gpu,
        "versions": {**versions(), **peers.versions},
        "set": {key: benchmarks[key] for key in ("command", "target", "arch", "versions")},
        "settings": {"repeat": args.repeat, "least_ms": args.least_ms},
        "entries": [],
    }
    print(f"{results['date']}: {results['command']}, with what `{benchmarks['command']}` made")
    print(", ".join(f"{key} {value}" for key, value in {**gpu, **results["versions"]}.items()))
    for note in peers.notes:
        print(note)
    settings = run.Settings(args.repeat, args.least_ms * 1e-3, args.copies, gpu["l2_bytes"])
    with run.machine(loader, device, HERE) as machine:
        for number, entry in enumerate(chosen, 1):
            print(f"[{number}/{len(chosen)}] {entry['name']}", file=sys.stderr, flush=True)
            found, lost = run.measured(entry, machine, peers, settings)
            results["entries"].append(found)
            args.out.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")
            if lost:
                print("the GPU refuses all further calls: the rest is not run", file=sys.stderr)
                break
    print(table(results["entries"]))
    for each in results["entries"]:
        for name, why in {**({"tinyc": each["wrong"]} if each["wrong"] else {}), **each["notes"]}.items():
            print(f"{each['name']}: {name}: {why}")
    ran = len(results["entries"]) == len(chosen)
    return 0 if ran and not any(each["wrong"] for each in results["entries"]) else 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="this program; repeatable"
    )
    parser.add_argument("--quick", action="store_true", help="a few programs")
    parser.add_argument(
        "--no-peers", dest="peers", action="store_false", help="ours alone, held against numpy's results"
    )
    parser.add_argument("--repeat", metavar="N", type=_positive, default=21, help="turns; default 21")
    parser.add_argument(
        "--copies", metavar="N", type=_positive, help="of the arrays; default: twice what the L2 cache holds"
    )
    parser.add_argument(
        "--least-ms", metavar="MS", type=float, default=5.0, help="of a contestant in each turn; default 5"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, default=Path("results.json"), help="the figures")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 9999):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 1 to 9999")
    return int(text)


def read_set(folder: Path) -> dict[str, Any]:
    """What bench.json says. Raises Unusable."""
    try:
        found = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"there is no benchmark set in {folder}: {error}") from None
    if not isinstance(found, dict) or found.get("format") != SET or found.get("version") != SET_VERSION:
        raise Unusable(f"bench.json in {folder} is no benchmark set of version {SET_VERSION}")
    return found


def select(entries: Sequence[Mapping[str, Any]], only: Sequence[str], quick: bool) -> list[Mapping[str, Any]]:
    """The entries that are asked for. Raises Unusable for a name that there is not, and where none is left."""
    names = [each["name"] for each in entries]
    if unknown := [name for name in only if name not in names]:
        raise Unusable(f"there is no {', '.join(unknown)}; there are {', '.join(names)}")
    found = [each for each in entries if (not only or each["name"] in only) and (each["quick"] or not quick)]
    if not found:
        raise Unusable("no program is left")
    return found


def check_device(benchmarks: Mapping[str, Any], device: Any, loader: Any) -> None:
    """Raises Unusable where the machine code is for other GPUs."""
    if loader.runs_on(benchmarks["arch"], device.capability):
        return
    target = {8: "sm80", 9: "sm90"}.get(device.capability[0])
    other = f"; make the folder anew with --target {target}" if target else ""
    raise Unusable(
        f"the kernels are machine code for {benchmarks['arch']}, and {device.name}, of compute capability "
        f"{'.'.join(map(str, device.capability))}, does not run it: it is for one generation of GPUs{other}"
    )


def gpu_facts(device: Any) -> dict[str, Any]:
    """What the figures depend on."""
    with device.current() as driver:
        handle = driver("cuDeviceGet", device.ordinal)
        attributes = driver.api.CUdevice_attribute
        cache, processors = (
            int(driver("cuDeviceGetAttribute", getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))
            for name in ("L2_CACHE_SIZE", "MULTIPROCESSOR_COUNT")
        )
        version = int(driver("cuDriverGetVersion"))
    facts = {
        "name": device.name,
        "compute_capability": ".".join(map(str, device.capability)),
        "multiprocessors": processors,
        "l2_bytes": cache,
        "driver_cuda": f"{version // 1000}.{version % 1000 // 10}",
    }
    with contextlib.suppress(OSError):  # Linux alone has it
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        if number := re.search(r"\b\d{3}\.\d+(\.\d+)?\b", text):
            facts["driver"] = number[0]
    return facts


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("numpy", "cuda-bindings"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """A row for each entry. A ratio is our time by theirs: below 1, ours is faster; an estimate is the cost model's."""
    peers = list(dict.fromkeys(name for each in found for name in each["contestants"] if name != "tinyc"))
    head = ["program", "tinyc, µs", "estimate", "TFLOP/s", "GB/s"]
    head += [text for peer in peers for text in (f"{peer}, µs", "ratio")]
    rows = [head, *(list(_row(each, peers)) for each in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )


def _row(each: Mapping[str, Any], peers: Sequence[str]) -> Iterator[str]:
    ours = each["contestants"].get("tinyc")
    yield each["name"]
    yield f"{ours['time_s'] * 1e6:.1f}" if ours else "wrong"
    yield f"{each['estimate_s'] * 1e6:.1f}"
    yield f"{ours['flops_per_s'] * 1e-12:.1f}" if ours and each["flops"] else ""
    yield f"{ours['bytes_per_s'] * 1e-9:.0f}" if ours else ""
    for peer in peers:
        theirs = each["contestants"].get(peer)
        yield f"{theirs['time_s'] * 1e6:.1f}" if theirs else ""
        yield f"{theirs['ratio']:.2f}" if theirs else ""


if __name__ == "__main__":
    sys.exit(main())
