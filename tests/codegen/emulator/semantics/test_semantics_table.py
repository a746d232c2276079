"""What is no instruction, or none of those that are computed, has no operation."""

from __future__ import annotations

import pytest

from tinyc.codegen.emulator.semantics import operation


@pytest.mark.parametrize(
    ("name", "modifiers"),
    [
        ("add", ("f8",)),
        ("add", ("u8",)),
        ("mul", ("s32",)),
        ("mul", ("wide", "u64")),
        ("mad", ("wide", "s64")),
        ("shl", ("s32",)),
        ("and", ("u32",)),
        ("neg", ("u32",)),
        ("popc", ("u32",)),
        ("add", ("s32", "cc")),
        ("prmt", ("f4e", "b32")),
        ("shf", ("l", "b32")),
        ("frobnicate", ("b32",)),
        ("ld", ("global", "b32")),
        ("setp", ("ltu", "s32")),
        ("setp", ("lt", "b32")),
        ("cvt", ("rn", "relu", "f32", "f64")),
        ("cvt", ("rn", "satfinite", "f16", "f64")),
        ("cvt", ("rm", "relu", "f16", "f32")),
        ("cvt", ("rn", "sat", "bf16", "f32")),
        ("cvt", ("rn", "f64", "f32")),
        ("cvt", ("rni", "f16", "f32")),
        ("cvt", ("rn", "s32")),
        ("cvt", ("ftz", "s32", "u32")),
        ("cvt", ("rm", "f16x2", "f32")),
        ("cvt", ("rna", "bf16x2", "f32")),
        ("cvt", ("rn", "tf32", "f64")),
        ("vabsdiff4", ("u32", "u32")),
        ("vabsdiff4", ("u32", "u32", "u32", "sat", "add")),
        ("vabsdiff3", ("u32", "u32", "u32")),
        ("mad", ("hi", "sat", "u32")),
        ("sub", ("u16x2",)),
        ("max", ("relu", "u32")),
        ("selp", ("b8",)),
        ("selp", ("b32", "b32")),
        ("slct", ("b32",)),
        ("set", ("lt", "s32")),
        ("set", ("lt", "f16x2", "f32")),
        ("dp4a", ("s32",)),
        ("dp2a", ("s32", "s32")),
        ("testp", ("f32",)),
        ("copysign", ("f16",)),
        ("min", ("xorsign", "f32")),
        ("cvt", ("f16", "f32")),
        ("cvta", ("rn", "f16", "f32")),
        ("cvt", ("rn", "sat", "relu", "f16", "f32")),
        ("cvt", ("rn", "sat", "bf16", "s32")),
        ("cvt", ("f16",)),
        ("cvt", ("rn", "s32", "f32")),
        ("cvt", ("rni", "f32", "s32")),
        ("fma", ("f32",)),
        ("ex2", ("f32",)),
        ("mov", ()),
    ],
)
def test_what_is_not_known_has_no_operation(name: str, modifiers: tuple[str, ...]) -> None:
    assert operation(name, modifiers) is None
