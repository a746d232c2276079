"""Documents that several tests of tests/ir use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyc.ir import Program, TinycError, program_from_document


def leaf(id: str, shape: list[Any], dtype: str = "fp32") -> dict[str, Any]:
    return {"id": id, "uop": "INPUT", "arg": {"tensor_id": id, "dtype": dtype, "shape": shape}}


def op(id: str, uop: str, /, *src: Any, **arg: Any) -> dict[str, Any]:
    return {"id": id, "uop": uop, "src": list(src), "arg": arg}


def load(*uops: Mapping[str, Any], **more: Any) -> Program:
    return program_from_document({"uops": list(uops), **more})


def failure(*uops: Mapping[str, Any], **more: Any) -> TinycError:
    """The error that loading gives; it must have all its parts."""
    try:
        load(*uops, **more)
    except TinycError as error:
        assert error.why and error.suggestion and error.code in str(error)
        return error
    raise AssertionError("the document loaded")


#: document 002 §5.1
GEMM = """{
  "uops": [
    {"id":"n0","uop":"INPUT","arg":{"tensor_id":"A","dtype":"fp16","shape":["M","K"]}},
    {"id":"n1","uop":"INPUT","arg":{"tensor_id":"B","dtype":"fp16","shape":["K","N"]}},
    {"id":"n2","uop":"RESHAPE","src":["n0"],"arg":{"result_shape":["M",1,"K"]}},
    {"id":"n3","uop":"PERMUTE","src":["n1"],"arg":{"perm":[1,0]}},                 // B^T: [N,K]
    {"id":"n4","uop":"RESHAPE","src":["n3"],"arg":{"result_shape":[1,"N","K"]}},   // [1,N,K]
    {"id":"n5","uop":"EXPAND","src":["n2"],"arg":{"result_shape":["M","N","K"],"broadcast_dimensions":[0,2]}},
    {"id":"n6","uop":"EXPAND","src":["n4"],"arg":{"result_shape":["M","N","K"],"broadcast_dimensions":[1,2]}},
    {"id":"n7","uop":"MUL","src":["n5","n6"]},
    {"id":"n8","uop":"REDUCE","src":["n7"],"arg":{"op":"SUM","axes":["K"],"dtype":"fp32"}},
    {"id":"n9","uop":"CAST","src":["n8"],"arg":{"to":"fp16"}}
  ]
}"""

#: document 002 §5.2 with the numbers of its title (I-13, I-14, I-16): 3×3, stride 2, pad 1, G groups
CONV = """{
  "symbols": {"Cin_total": "G*Cin", "Cout": "G*Rcout", "Oy": "(H+2-2-1)//2+1", "Ox": "(W+2-2-1)//2+1"},
  "uops": [
    {"id":"x",  "uop":"INPUT","arg":{"tensor_id":"X","dtype":"fp16","shape":["N","Cin_total","H","W"]}},
    {"id":"w",  "uop":"INPUT","arg":{"tensor_id":"W","dtype":"fp16","shape":["Cout","Cin",3,3]}},
    {"id":"b",  "uop":"INPUT","arg":{"tensor_id":"bias","dtype":"fp16","shape":["Cout"]}},
    {"id":"xp", "uop":"PAD",   "src":["x"], "arg":{"pad":[[0,0],[0,0],[1,1],[1,1]], "value":0}},
    {"id":"xw", "uop":"POOL", "src":["xp"], "arg":{"kernel":[3,3], "stride":[2,2], "dilation":[1,1]}},
    {"id":"x1", "uop":"RESHAPE","src":["xw"], "arg":{"result_shape":["N","G","Cin",1,"Oy","Ox",3,3]}},
    {"id":"x2", "uop":"EXPAND", "src":["x1"], "arg":{"result_shape":["N","G","Cin","Rcout","Oy","Ox",3,3]}},
    {"id":"x3", "uop":"PERMUTE","src":["x2"], "arg":{"perm":[0,1,3,4,5,2,6,7]}},
    {"id":"w1", "uop":"RESHAPE","src":["w"],  "arg":{"result_shape":["G","Rcout","Cin",3,3]}},
    {"id":"w2", "uop":"RESHAPE","src":["w1"], "arg":{"result_shape":[1,"G","Rcout",1,1,"Cin",3,3]}},
    {"id":"w3", "uop":"EXPAND", "src":["w2"], "arg":{"result_shape":["N","G","Rcout","Oy","Ox","Cin",3,3]}},
    {"id":"p",  "uop":"MUL",    "src":["x3","w3"]},
    {"id":"yacc","uop":"REDUCE","src":["p"],  "arg":{"op":"SUM","axes":["Cin",-2,-1],"dtype":"fp32"}},
    {"id":"y0","uop":"RESHAPE","src":["yacc"], "arg":{"result_shape":["N","Cout","Oy","Ox"]}},
    {"id":"b0","uop":"CAST",   "src":["b"],    "arg":{"to":"fp32"}},
    {"id":"b1","uop":"RESHAPE","src":["b0"],   "arg":{"result_shape":[1,"Cout",1,1]}},
    {"id":"b2","uop":"EXPAND", "src":["b1"],   "arg":{"result_shape":["N","Cout","Oy","Ox"]}},
    {"id":"y1","uop":"ADD",    "src":["y0","b2"]},
    {"id":"y", "uop":"CAST",   "src":["y1"],   "arg":{"to":"fp16"}}
  ]
}"""

#: document 002 §5.3 as corrected by I-17 and I-18
ATTENTION = """{
  "uops":[
    {"id":"n0","uop":"INPUT","arg":{"tensor_id":"Q","dtype":"fp16","shape":["B","H","M","D"]}},
    {"id":"n1","uop":"INPUT","arg":{"tensor_id":"K","dtype":"fp16","shape":["B","H","N","D"]}},
    {"id":"n3","uop":"RESHAPE","src":["n0"],"arg":{"result_shape":["B","H","M",1,"D"]}},
    {"id":"n4","uop":"RESHAPE","src":["n1"],"arg":{"result_shape":["B","H",1,"N","D"]}},
    {"id":"n5","uop":"EXPAND","src":["n3"],"arg":{"result_shape":["B","H","M","N","D"],"broadcast_dimensions":[0,1,2,4]}},
    {"id":"n6","uop":"EXPAND","src":["n4"],"arg":{"result_shape":["B","H","M","N","D"],"broadcast_dimensions":[0,1,3,4]}},
    {"id":"n7","uop":"MUL","src":["n5","n6"]},
    {"id":"n8","uop":"REDUCE","src":["n7"],"arg":{"op":"SUM","axes":["D"],"dtype":"fp32"}},
    {"id":"n9","uop":"REDUCE","src":["n8"],"arg":{"op":"MAX","axes":["N"],"dtype":"fp32"}},
    {"id":"n9e","uop":"EXPAND","src":["n9"],"arg":{"result_shape":["B","H","M","N"],"broadcast_dimensions":[0,1,2]}},
    {"id":"n10","uop":"SUB","src":["n8","n9e"]},
    {"id":"n11","uop":"MUL","src":["n10",1.442695]},
    {"id":"n12","uop":"EXP2","src":["n11"]},
    {"id":"n13","uop":"REDUCE","src":["n12"],"arg":{"op":"SUM","axes":["N"],"dtype":"fp32"}},
    {"id":"n13e","uop":"EXPAND","src":["n13"],"arg":{"result_shape":["B","H","M","N"],"broadcast_dimensions":[0,1,2]}},
    {"id":"n14","uop":"FDIV","src":["n12","n13e"]},
    {"id":"n15","uop":"CAST","src":["n14"],"arg":{"to":"fp16"}}
  ]
}"""

#: document 004 §3.5.1; the bias is CAST (I-22)
GEMM_004 = """{
  "tensors": {"A": {"dtype": "fp16", "shape": ["M", "K"]}, "B": {"dtype": "f16", "shape": ["K", "N"]},
              "bias": {"dtype": "fp16", "shape": ["N"]}},
  "uops": [
    {"uop":"VIEW","src":["A"]},
    {"uop":"VIEW","src":["B"]},
    {"uop":"CONTRACT","arg":{"pattern":"matmul","lhs_idx":["m","k"],"rhs_idx":["k","n"],"out_idx":["m","n"],"reduce_idx":["k"]},"src":["A","B"],"out":"Cacc_fp32"},
    {"uop":"CAST","src":["bias"],"arg":{"to":"fp32"},"out":"bias32"},
    {"uop":"EXPAND","src":["bias32"],"arg":{"result_shape":["M","N"],"broadcast_dimensions":[1]},"out":"biasMN"},
    {"uop":"OPS.ADD","src":["Cacc_fp32","biasMN"],"out":"C1"},
    {"uop":"WHERE","src":[{"gt":"C1,0"}, "C1", 0.0],"out":"C2_fp32"},
    {"uop":"CAST","src":["C2_fp32"],"arg":{"to":"fp16"},"out":"C2"}
  ]
}"""

#: document 004 §3.5.2 with the PAD of I-23
CONV_004 = """{
  "tensors": {"X": {"dtype": "fp16", "shape": ["N", "Cin", "H", "W"]}, "W": {"dtype": "fp16", "shape": ["Cout", "Cin", 3, 3]}},
  "uops": [
    {"uop":"PAD","src":["X"],"arg":{"pad": [[0,0],[0,0],[1,1],[1,1]]},"out":"Xp"},
    {"uop":"VIEW","src":["Xp"],"out":"Xv"},
    {"uop":"CONTRACT","arg":{"pattern":"conv2d","lhs_idx":["co","ci","kh","kw"],"rhs_idx":["n","ci","ho","wo","kh","kw"],"out_idx":["n","co","ho","wo"],"reduce_idx":["ci","kh","kw"],"strides":[2,2]},"src":["W","Xv"],"out":"Yacc_fp32"},
    {"uop":"CAST","src":["Yacc_fp32"],"arg":{"to":"fp16"},"out":"Y"}
  ]
}"""

#: document 004 §3.5.3 with dtypes on REDUCE and the missing EXPANDs (I-18)
ATTENTION_004 = """{
  "tensors": {"Q": {"dtype": "fp16", "shape": ["B","H","M","D"]}, "K": {"dtype": "fp16", "shape": ["B","H","N","D"]}},
  "uops":[
    {"uop":"CONTRACT","arg":{"pattern":"matmul","lhs_idx":["b","h","m","d"],"rhs_idx":["b","h","n","d"],"out_idx":["b","h","m","n"],"reduce_idx":["d"]},"src":["Q","K"],"out":"S"},
    {"uop":"REDUCE","src":["S"],"arg":{"op":"MAX","axes":["n"],"dtype":"fp32"},"out":"Mrow"},
    {"uop":"EXPAND","src":["Mrow"],"arg":{"result_shape":["B","H","M","N"],"broadcast_dimensions":[0,1,2]},"out":"Mx"},
    {"uop":"SUB","src":["S","Mx"],"out":"S0"},
    {"uop":"EXP2","src":[{"mul":["S0",1.442695]}],"out":"A"},  // exp(x)=2^{x*log2(e)}
    {"uop":"REDUCE","src":["A"],"arg":{"op":"SUM","axes":["n"],"dtype":"fp32"},"out":"Z"},
    {"uop":"EXPAND","src":["Z"],"arg":{"result_shape":["B","H","M","N"],"broadcast_dimensions":[0,1,2]},"out":"Zx"},
    {"uop":"FDIV","src":["A","Zx"],"out":"P_fp32"},
    {"uop":"CAST","src":["P_fp32"],"arg":{"to":"fp16"},"out":"P"}
  ]
}"""
