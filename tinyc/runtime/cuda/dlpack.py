"""DLPack, version 0: the capsules in which array libraries hand each other memory of a device (dlpack.h of the DLPack project).

``ctypes`` is enough: a capsule holds a structure that says where the elements lie, and how to let them go.
"""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from typing import Any

from tinyc.ir.dtypes import DType

CUDA = 2
"""kDLCUDA, memory of an NVIDIA GPU."""

CODES = {
    DType.I32: (0, 32),
    DType.FP16: (2, 16),
    DType.FP32: (2, 32),
    DType.BF16: (4, 16),
    DType.BOOL: (6, 8),
}
"""The code of DLDataType, and bits."""

_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


@dataclass(frozen=True)
class Described:
    """What a capsule says. ``strides``: in elements; None for row-major. ``dtype``: None for one that tinyc does not have."""

    address: int
    device: tuple[int, int]
    dtype: DType | None
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


def described(capsule: Any) -> Described:
    """What ``capsule`` holds, which stays the caller's: its memory is there as long as the capsule is. Raises ValueError."""
    tensor = ctypes.cast(_get_pointer(capsule, _NAME), ctypes.POINTER(_Managed)).contents.tensor
    ndim = tensor.ndim
    found = ((dtype, one) for dtype, one in CODES.items() if one == (tensor.code, tensor.bits))
    dtype = next((dtype for dtype, _ in found), None) if tensor.lanes == 1 else None
    return Described(
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device_id),
        dtype,
        tuple(tensor.shape[axis] for axis in range(ndim)),
        tuple(tensor.strides[axis] for axis in range(ndim)) if tensor.strides else None,
    )


def capsule_of(address: int, ordinal: int, dtype: DType, shape: tuple[int, ...], owner: Any) -> Any:
    """A capsule for row-major elements at ``address`` of GPU ``ordinal``; ``owner`` lives until its receiver is done."""
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    code, bits = CODES[dtype]
    tensor = _Tensor(address, CUDA, ordinal, len(shape), code, bits, 1, sizes, None, 0)
    number = next(_numbers)
    managed = _Managed(tensor, number, _delete)
    _lent[number] = (managed, sizes, owner)
    return _new_capsule(ctypes.addressof(managed), _NAME, _destroy)


_numbers = itertools.count(1)
_lent: dict[int, Any] = {}  # what receivers still hold, by the number in its structure


@_Deleter
def _delete(managed: int) -> None:
    _lent.pop(_Managed.from_address(managed).context, None)


@_Deleter
def _destroy(capsule: int) -> None:
    """Of a capsule that nobody took: its receiver would have renamed it."""
    if _is_valid(capsule, _NAME):
        _delete(_pointer_of(capsule, _NAME))


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_get_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_new_capsule = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
# in a destructor the object has no references any more, and must get none: its address is passed
_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_of = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
