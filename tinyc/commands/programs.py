"""compile, run, dump: what is done to one program file."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.signature import Signature, signature_of
from tinyc.settings import Settings

from .compiling import FILE, about, compile_options, compile_source, open_source, unique, warn
from .console import say, say_table
from .files import array_bytes, npy_bytes, read_array, write_files

if TYPE_CHECKING:
    from tinyc.compiler import Compiled
    from tinyc.extract.cost.measurements import Measurement
    from tinyc.ir.tiny import Program

#: the stages that hold the source of each kernel -> the suffix of its file
SOURCES = {"llvm": "ll", "cu": "cu"}


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    options = compile_options()

    command = subparsers.add_parser(
        "compile", parents=[options], help="compile a program and say what came out"
    )
    command.add_argument("file", metavar="FILE", help=FILE)
    command.add_argument(
        "--dump", metavar="STAGES", type=_stages, default=(), help="such as tiny,region,plan"
    )
    command.add_argument(
        "--out", metavar="DIR", type=Path, help="write the dumps here (without --dump: the source)"
    )
    command.set_defaults(command=compile_file)

    command = subparsers.add_parser("run", parents=[options], help="run a program on arrays from files")
    command.add_argument("file", metavar="FILE", help=FILE)
    command.add_argument(
        "--playback", action="store_true", help="interpret the Regions with numpy instead of running code"
    )
    command.add_argument(
        "--input",
        metavar="NAME=FILE.npy",
        type=named_file,
        action="append",
        default=[],
        help="one per input",
    )
    command.add_argument(
        "--output", metavar="FILE", type=Path, help="out.npz, or out.npy for a single output"
    )
    command.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        help="time each kernel as well, and append the times to a CSV file",
    )
    command.set_defaults(command=run_file)

    command = subparsers.add_parser(
        "dump", parents=[options], help="print one stage of a program, or of a dump that it goes on from"
    )
    command.add_argument("stage", metavar="STAGE", type=_stages, help="such as region; several with commas")
    command.add_argument("file", metavar="FILE", help=FILE)
    command.set_defaults(command=dump_file)


def compile_file(args: argparse.Namespace, settings: Settings) -> int:
    from tinyc.compiler import target_here  # heavy, and not needed for --help
    from tinyc.stages import code_stage

    args.target = target_here() if args.target == "auto" else args.target
    stages = args.dump or ((code_stage(args.target),) if args.out else ())
    compiled = compile_source(args, args.file, partial=bool(stages) and _before_binding(stages))
    if args.out:
        with about(args.file):
            files = {
                args.out / name: text
                for stage in stages
                for name, text in _stage_files(compiled, stage).items()
            }
        write_files({path: text.encode() for path, text in files.items()})
        say("\n".join(str(path) for path in files))
    elif stages:
        _say_stages(compiled, args.file, stages)
    else:
        _say_kernels(compiled, settings)
        warn(compiled)
    return 0


def run_file(args: argparse.Namespace, settings: Settings) -> int:
    opened, compiled, signature = opened_for_arrays(args)
    types = {argument.name: argument for argument in signature.inputs}
    single = args.output is not None and args.output.suffix == ".npy"
    if single and len(signature.outputs) > 1:
        why = f"a .npy file holds one array, the program has {len(signature.outputs)} outputs"
        raise TinycError("Usage", why, "name the output file .npz", {"file": args.output})

    arrays = arrays_from_files(args, signature)
    compiled = compiled or compile_source(args, args.file, opened, partial=True)
    with about(args.file):
        result = compiled.playback(**arrays) if args.playback else compiled(**arrays)
    warn(compiled)
    values = result if isinstance(result, tuple) else (result,)
    outputs = {argument.name: value for argument, value in zip(signature.outputs, values, strict=True)}
    if args.output is not None:
        write_files({args.output: npy_bytes(values[0]) if single else array_bytes(outputs)})
    say_outputs(signature, values, settings)
    if args.log is not None:
        measured = compiled.measure(*(arrays[name] for name in types), log=args.log)
        say("")
        say_table(("region", "estimate", "measured", "ratio"), list(map(_timed, measured)), settings.color)
    return 0


def opened_for_arrays(
    args: argparse.Namespace,
) -> tuple[Program | dict[str, Any], Compiled | None, Signature]:
    """The program of ``args.file``, compiled already where it is a dump; ``args.input`` names what it takes, or it is an
    error."""
    paths = unique(args.input, "--input")
    opened = open_source(args.file)
    compiled = compile_source(args, args.file, opened, partial=True) if isinstance(opened, dict) else None
    signature = compiled.signature if compiled else signature_of(opened)  # type: ignore[arg-type]
    names = [argument.name for argument in signature.inputs]
    if unknown := sorted(set(paths) - set(names)):
        why = f"the program has no input named {', '.join(unknown)}"
        raise TinycError("InputMismatch", why, f"its inputs are {', '.join(names)}", {"file": args.file})
    if missing := [name for name in names if name not in paths]:
        why = f"nothing is given for {', '.join(missing)}"
        suggestion = " ".join(f"--input {name}={name}.npy" for name in missing)
        raise TinycError("InputMismatch", why, f"add {suggestion}", {"file": args.file})
    return opened, compiled, signature


def arrays_from_files(args: argparse.Namespace, signature: Signature) -> dict[str, Any]:
    """The arrays of ``args.input``."""
    types = {argument.name: argument for argument in signature.inputs}
    paths = unique(args.input, "--input")
    return {name: read_array(Path(path), types[name].dtype) for name, path in paths.items()}


def say_outputs(signature: Signature, values: Sequence[Any], settings: Settings) -> None:
    """A table of a program's outputs."""
    rows = [
        (argument.name, str(argument.dtype), "×".join(map(str, value.shape)) or "scalar", _head(value))
        for argument, value in zip(signature.outputs, values, strict=True)
    ]
    say_table(("output", "dtype", "shape", "first elements"), rows, settings.color)


def dump_file(args: argparse.Namespace, settings: Settings) -> int:
    compiled = compile_source(args, args.file, partial=_before_binding(args.stage))
    _say_stages(compiled, args.file, args.stage)
    return 0


def _before_binding(stages: Collection[str]) -> bool:
    from tinyc.stages import OF_PROGRAM

    return set(stages) <= OF_PROGRAM


def _stage_files(compiled: Compiled, stage: str) -> dict[str, str]:
    """File name -> text of one stage. The numbers are those of the whole pipeline, whatever else is dumped."""
    from tinyc.compiler import STAGES

    name = f"{STAGES.index(stage) + 1:02d}-{stage}"
    if stage not in SOURCES:
        return {f"{name}.json": compiled.dump(stage)}
    return {f"{name}-{kernel.name}.{SOURCES[stage]}": kernel.source for kernel in compiled.kernels}


def _say_stages(compiled: Compiled, file: str, stages: tuple[str, ...]) -> None:
    with about(file):
        texts = [text for stage in stages for text in _stage_files(compiled, stage).values()]
    for text in texts:
        say(text.rstrip("\n"))


def _say_kernels(compiled: Compiled, settings: Settings) -> None:
    rows = [
        (
            kernel.region.name,
            kernel.plan.algo,
            " ".join(f"{axis.name}<{axis.size}" for axis in kernel.region.iters),
            ", ".join(ref.name for ref in kernel.region.inputs),
            ", ".join(f"{ref.name} {ref.dtype}" for ref in kernel.region.outputs),
            kernel.name,
        )
        for kernel in compiled.kernels
    ]
    headers = ("region", "schedule", "for each", "reads", "writes", "kernel")
    say_table(headers, rows, settings.color)


def _timed(row: Measurement) -> tuple[str, ...]:
    us = 1e6
    ratio = row.estimate / row.actual
    return row.region, f"{row.estimate * us:.2f} us", f"{row.actual * us:.2f} us", f"{ratio:.2f}"


def _head(value: Any) -> str:
    """The first elements of an array, for a glance."""
    flat = value.reshape(-1)[:4]
    return " ".join(f"{element}" for element in flat.tolist()) + (" …" if value.size > 4 else "")


def _stages(text: str) -> tuple[str, ...]:
    from tinyc.compiler import STAGES

    wanted = text.split(",")
    if unknown := [stage for stage in wanted if stage not in STAGES]:
        raise argparse.ArgumentTypeError(
            f"no stage {', '.join(map(repr, unknown))}; there are {', '.join(STAGES)}"
        )
    return tuple(stage for stage in STAGES if stage in wanted)


def named_file(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=FILE.npy")
    return name, path
