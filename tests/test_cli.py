"""The command line: every command, exit status, error form, and that a failure leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from command_line import ROOT, affine, files, save, tinyc_process, vectors, write

import tinyc
from tinyc.cli import main


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def program() -> str:
    return write("affine.json", affine())


class TestUsage:
    @pytest.mark.parametrize(
        "argv",
        [
            [],
            ["unheard-of"],
            ["compile"],
            ["compile", "f.json", "--target", "abacus"],
            ["compile", "f.json", "--shape", "M"],
            ["compile", "f.json", "--shape", "M=0"],
            ["compile", "f.json", "--shape", "M=-1"],
            ["compile", "f.json", "--shape", "M=1.5"],
            ["compile", "f.json", "--dump=region,unheard-of"],
            ["run", "f.json", "--input", "A"],
            ["dump", "unheard-of", "f.json"],
            ["rules"],
            ["rules", "unheard-of"],
        ],
    )
    def test_wrong_arguments_exit_2(self, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(argv) == 2
        streams = capsys.readouterr()
        assert streams.err.startswith("usage: ")
        assert not streams.out

    def test_a_symbol_bound_twice_exits_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        file = write("p.json", affine(size="M"))
        assert main(["compile", file, "--shape", "M=2", "--shape", "M=3"]) == 2
        assert "E1802 Usage" in capsys.readouterr().err

    @pytest.mark.parametrize("argv", [["--help"], ["--version"], ["compile", "--help"], ["rules", "--help"]])
    def test_help_exits_0(self, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(argv) == 0
        assert capsys.readouterr().out

    def test_python_dash_m(self) -> None:
        done = tinyc_process("--version")
        assert (done.returncode, done.stdout) == (0, f"tinyc {tinyc.__version__}\n")


class TestErrors:
    @pytest.mark.spec("004-146")
    def test_an_input_at_fault_exits_1_and_prints_the_five_fields(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        document = affine()
        document["uops"][1]["arg"]["shape"] = [3]
        assert main(["compile", write("wrong.json", document)]) == 1
        streams = capsys.readouterr()
        assert not streams.out
        assert "E1001 BroadcastMismatch at " in streams.err
        assert "sum" in streams.err.splitlines()[0], "at names the node"
        assert "why: " in streams.err
        assert "try: " in streams.err
        assert "Traceback" not in streams.err

    def test_debug_adds_the_traceback(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TINYC_DEBUG", "1")
        assert main(["compile", "absent.json"]) == 1
        streams = capsys.readouterr()
        assert "Traceback" in streams.err
        assert "FileUnreadable" in streams.err

    @pytest.mark.parametrize("content", ["", "[", "{}", "[1]", "null", "\0", '{"uops": 3}'])
    def test_a_file_that_is_no_program_exits_1(
        self, content: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("p.json").write_text(content)
        assert main(["compile", "p.json"]) == 1
        assert "tinyc: error: E1" in capsys.readouterr().err

    @pytest.mark.parametrize("path", ["absent.json", ".", "/dev/null/p.json"])
    def test_a_file_that_cannot_be_read_exits_1(self, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compile", path]) == 1
        assert "FileUnreadable" in capsys.readouterr().err

    def test_a_bad_variable_exits_1_and_is_named(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TINYC_NUM_THREADS", "many")
        assert main(["rules", "list"]) == 1
        assert "InvalidSetting at variable TINYC_NUM_THREADS" in capsys.readouterr().err

    def test_a_fault_of_ours_exits_3_and_says_where_to_report(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def broken(extra: object) -> None:
            raise KeyError("surprise")

        monkeypatch.setattr("tinyc.egraph.rulefiles.list_rules", broken)
        assert main(["rules", "list"]) == 3
        error = capsys.readouterr().err
        assert "surprise" in error
        assert "Reporting a fault" in error
        assert "Traceback" not in error
        assert "## Reporting a fault" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    def test_an_unbound_symbol_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compile", write("p.json", affine(size="M"))]) == 1
        error = capsys.readouterr().err
        assert "UnboundSymbol" in error
        assert "--shape M=" in error

    def test_a_symbol_that_the_program_lacks_is_named(
        self, program: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["compile", program, "--shape", "Q=3"]) == 1
        assert "Q" in capsys.readouterr().err

    def test_an_unknown_ruleset_is_named(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compile", program, "--without", "no-such-rules"]) == 1
        assert "UnknownRuleset" in capsys.readouterr().err


class TestCompile:
    def test_says_what_came_out(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compile", program]) == 0
        header, _, *kernels = capsys.readouterr().out.splitlines()
        assert header.split()[0] == "region"
        assert len(kernels) == 1

    @pytest.mark.spec("004-143")
    def test_dumps_are_numbered_in_pipeline_order_and_strict_json(
        self, program: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["compile", program, "--dump=exec,plan,region,tiny,llvm", "--out", "deep/out"]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert set(printed) == {str(path) for path in Path("deep/out").iterdir()}
        names = [Path(line).name for line in printed]
        assert names == sorted(names)
        assert [name.split("-")[1].split(".")[0] for name in names] == [
            "tiny",
            "region",
            "plan",
            "exec",
            "llvm",
        ]
        for path in Path("deep/out").glob("*.json"):
            (stage,) = json.loads(path.read_text(), parse_constant=pytest.fail)
            assert path.name.endswith(f"-{stage}.json")

    def test_without_out_dumps_go_to_standard_output(
        self, program: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["compile", program, "--dump=region"]) == 0
        by_compile = capsys.readouterr().out
        assert main(["dump", "region", program]) == 0
        assert capsys.readouterr().out == by_compile
        assert list(json.loads(by_compile)) == ["region"]
        assert files() == {program}

    def test_a_folder_that_cannot_be_made_is_an_error(
        self, program: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["compile", program, "--dump=region", "--out", f"{program}/out"]) == 1
        assert "FileUnwritable" in capsys.readouterr().err
        assert files() == {program}


class TestRun:
    def test_writes_what_the_program_computes(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", program, *vectors(), "--output", "out.npz"]) == 0
        with np.load("out.npz") as out:
            assert out.files == ["out"]
            assert out["out"].dtype == np.float32
            np.testing.assert_array_equal(out["out"], [0, 3, 0, 7])
        assert "0.0 3.0 0.0 7.0" in capsys.readouterr().out
        assert files() == {program, "x.npy", "y.npy", "out.npz"}

    def test_a_single_output_may_be_an_npy(self, program: str) -> None:
        assert main(["run", program, *vectors(), "--output", "out.npy"]) == 0
        np.testing.assert_array_equal(np.load("out.npy"), [0, 3, 0, 7])

    def test_symbols_bind_from_the_arrays(self) -> None:
        assert main(["run", write("p.json", affine(size="M")), *vectors(), "--output", "out.npy"]) == 0
        np.testing.assert_array_equal(np.load("out.npy"), [0, 3, 0, 7])

    def test_the_same_run_writes_the_same_bytes(self, program: str) -> None:
        assert main(["run", program, *vectors(), "--output", "one.npz"]) == 0
        assert main(["run", program, *vectors(), "--output", "two.npz"]) == 0
        assert Path("one.npz").read_bytes() == Path("two.npz").read_bytes()

    @pytest.mark.parametrize("form", ["uint16", "void"])
    def test_bf16_travels_as_bits(self, form: str) -> None:
        """uint16 bits and the two-byte void that numpy makes of ml_dtypes' bfloat16 are both bf16."""
        values = np.array([1.5, -2.0, 3.0, 0.25], dtype=ml_dtypes.bfloat16)
        given = values.view(np.uint16) if form == "uint16" else values
        save("x.npy", given)
        assert np.load("x.npy").dtype == (np.uint16 if form == "uint16" else np.dtype("V2"))
        save("y.npy", given)
        file = write("p.json", affine("bf16"))
        assert main(["run", file, "--input", "x=x.npy", "--input", "y=y.npy", "--output", "out.npz"]) == 0
        with np.load("out.npz") as out:
            assert out["out"].dtype == np.uint16
            np.testing.assert_array_equal(out["out"].view(ml_dtypes.bfloat16).astype(float), [3, 0, 6, 0.5])

    def test_several_outputs_keep_their_names_and_order(self) -> None:
        document = affine()
        document["uops"].append(
            {"id": "file", "uop": "NEG", "src": ["x"], "arg": {}}
        )  # a name numpy.savez chokes on
        file = write("p.json", document)
        assert main(["run", file, *vectors(), "--output", "out.npy"]) == 2
        assert main(["run", file, *vectors(), "--output", "out.npz"]) == 0
        with np.load("out.npz") as out:
            assert out.files == ["out", "file"]
            np.testing.assert_array_equal(out["file"], [-1, -2, -3, -4])

    def test_missing_unknown_and_unreadable_inputs(
        self, program: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = vectors()
        Path("broken.npy").write_bytes(b"\x93NUMPY")
        np.savez("many.npz", a=np.zeros(4), b=np.zeros(4))
        np.save("objects.npy", np.array([{}] * 4, dtype=object))
        for argv, kind, named in [
            (given[:2], "InputMismatch", "--input y="),
            ([*given, "--input", "z=x.npy"], "InputMismatch", "z"),
            ([*given[:2], "--input", "y=absent.npy"], "FileUnreadable", "absent.npy"),
            ([*given[:2], "--input", "y=broken.npy"], "FileUnreadable", "broken.npy"),
            ([*given[:2], "--input", "y=many.npz"], "FileUnreadable", "many.npz"),
            ([*given[:2], "--input", "y=objects.npy"], "FileUnreadable", "objects.npy"),
        ]:
            assert main(["run", program, *argv]) == 1
            error = capsys.readouterr().err
            assert kind in error
            assert named in error

    @pytest.mark.parametrize(
        "values", [np.zeros(4, np.float64), np.zeros(5, np.float32), np.zeros((4, 1), np.float32)]
    )
    def test_wrong_dtype_or_shape_is_an_error_and_never_a_cast(self, program: str, values: Any) -> None:
        given = vectors()
        save("y.npy", values)
        assert main(["run", program, *given, "--output", "out.npz"]) == 1
        assert "out.npz" not in files()

    def test_an_output_that_cannot_be_written(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        before = files()
        given = vectors()
        Path("taken").mkdir()
        assert main(["run", program, *given, "--output", "taken"]) == 1
        assert "FileUnwritable at file" in capsys.readouterr().err
        assert files() == {*before, "x.npy", "y.npy"}


class TestReport:
    def test_text_and_json(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report", program]) == 0
        assert capsys.readouterr().out.strip()
        assert main(["report", program, "--json"]) == 0
        assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["version"] >= 1

    def test_two_programs_are_compared(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        other = write("other.json", affine(size=4000))
        assert main(["report", program, other]) == 0
        assert "bytes" in capsys.readouterr().out
        assert main(["report", program, other, "--json"]) == 0
        totals = {each["name"]: each for each in json.loads(capsys.readouterr().out)["totals"]}
        assert totals["bytes"]["second"] == 1000 * totals["bytes"]["first"]


class TestRules:
    def test_list_as_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["rules", "list", "--json"]) == 0
        rules = json.loads(capsys.readouterr().out)
        assert len(rules) >= 60
        for rule in rules:
            assert set(rule) == {"name", "ruleset", "phase", "class", "default", "file", "line", "equation"}
            assert isinstance(rule["default"], bool)
            text = Path(rule["file"]).read_text(encoding="utf-8").splitlines()
            assert text[rule["line"] - 1].startswith("(r"), "file and line lead to the rule"
            assert rule["equation"]

    def test_list_as_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["rules", "list"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split()[:3] == ["rule", "ruleset", "phase"]
        assert len(lines) > 60

    def test_a_users_rules_are_listed_too(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rule = """
        (ruleset {0})
        (in-phase "{0}" "algebra" "EXACT" "off")
        ; x == x
        (rewrite (Unary "NEG" x) (Unary "NEG" x) :ruleset {0} :name "{0}/nothing")
        """
        Path("mine.egg").write_text(rule.format("mine"))
        Path("theirs.egg").write_text(rule.format("theirs"))
        monkeypatch.setenv("TINYC_RULES", "theirs.egg")
        assert main(["rules", "list", "--json", "--rules", "mine.egg"]) == 0
        mine = {rule["name"]: rule["default"] for rule in json.loads(capsys.readouterr().out)}
        assert mine["mine/nothing"] is False
        assert mine["theirs/nothing"] is False


class TestDoctor:
    def test_what_is_required_works_here(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["doctor", "--json"]) == 0
        checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
        assert {"python", "engine", "llvm", "main job", "cache folder", "nvrtc", "gpu driver"} <= set(checks)
        for check in checks.values():
            assert check["ok"] or (not check["required"] and check["advice"])

    def test_a_cache_folder_that_cannot_be_is_found(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("file").touch()
        monkeypatch.setenv("TINYC_CACHE_DIR", str(Path("file/cache").absolute()))
        assert main(["doctor"]) == 1
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cache folder")]
        assert "FAILED" in line
        assert "TINYC_CACHE_DIR" in line
