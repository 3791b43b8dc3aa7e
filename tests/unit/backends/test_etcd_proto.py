"""rpc_pb2.py says the same as rpc.proto, from which tools/protos.py writes it."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf import descriptor_pb2
from tools import protos

from fencelock.backends.etcd import rpc_pb2

FOLDER = Path(__file__).resolve().parents[3] / "src" / "fencelock" / "backends" / "etcd"
TEXT = (FOLDER / "rpc.proto").read_text()
SCALARS = {"bool", "bytes", "int64", "string", "uint64"}
WORD = re.compile(r"\w+(?:\.\w+)*|[{}=;]|\"[^\"]*\"")
FIELD = descriptor_pb2.FieldDescriptorProto


class Field(NamedTuple):
    """A field of a message. `type` is a scalar's name, or where a message or an enum is."""

    number: int
    type: str
    label: str
    oneof: str | None


class Message(NamedTuple):
    """A message: its fields and its enums, by name."""

    fields: dict[str, Field]
    enums: dict[str, dict[str, int]]


class Reader:
    """Reads as much of the language as rpc.proto needs, and stumbles over the rest."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"//.*", "", text)
        assert re.sub(WORD, "", text).strip() == "", "signs that this reader does not know"
        self._words: list[str] = WORD.findall(text)[::-1]
        self.messages: dict[str, Message] = {}
        self._expect("syntax", "=", '"proto3"', ";", "package")
        self.package = self._words.pop()
        self._expect(";")
        while self._words:
            self._expect("message")
            name = self._words.pop()
            assert name not in self.messages
            self.messages[name] = self._message()
        self._resolve()

    def _expect(self, *words: str) -> None:
        for word in words:
            assert self._words.pop() == word

    def _message(self) -> Message:
        message = Message({}, {})
        self._expect("{")
        while (word := self._words.pop()) != "}":
            if word == "enum":
                name = self._words.pop()
                message.enums[name] = self._enum()
            elif word == "oneof":
                name = self._words.pop()
                self._expect("{")
                while (inner := self._words.pop()) != "}":
                    self._field(message, inner, "optional", name)
            elif word == "repeated":
                self._field(message, self._words.pop(), word, None)
            else:
                self._field(message, word, "optional", None)
        return message

    def _field(self, message: Message, type_: str, label: str, oneof: str | None) -> None:
        name = self._words.pop()
        assert name not in message.fields
        self._expect("=")
        message.fields[name] = Field(int(self._words.pop()), type_, label, oneof)
        self._expect(";")

    def _enum(self) -> dict[str, int]:
        values: dict[str, int] = {}
        self._expect("{")
        while (name := self._words.pop()) != "}":
            self._expect("=")
            values[name] = int(self._words.pop())
            self._expect(";")
        return values

    def _resolve(self) -> None:
        """Write types as the compiler does: an enum is looked for in its message, a message everywhere."""
        for name, (fields, enums) in self.messages.items():
            for each, field in fields.items():
                if field.type in enums:
                    fields[each] = field._replace(type=f".{self.package}.{name}.{field.type}")
                elif field.type not in SCALARS:
                    assert field.type in self.messages, f"{name}.{each} is of no type that is known"
                    fields[each] = field._replace(type=f".{self.package}.{field.type}")


def compiled() -> Any:
    """Return the description that the generated code carries."""
    file = descriptor_pb2.FileDescriptorProto()
    rpc_pb2.DESCRIPTOR.CopyToProto(file)
    return file


def read(message: Any) -> Message:
    """Return a message of that description."""
    assert not message.nested_type
    assert not message.extension
    fields: dict[str, Field] = {}
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
        type_ = field.type_name or FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()
        label = FIELD.Label.Name(field.label).removeprefix("LABEL_").lower()
        fields[field.name] = Field(field.number, type_, label, oneof)
    enums = {enum.name: {value.name: value.number for value in enum.value} for enum in message.enum_type}
    return Message(fields, enums)


WRITTEN = Reader(TEXT)


def test_the_reader_reads() -> None:
    reader = Reader(
        """syntax = "proto3"; package a.b; // words
        message One { bytes key = 1; repeated One more = 2; enum E { NO = 0; YES = 1; } E e = 3; }
        message Two { oneof which { One one = 4; int64 number = 5; } }"""
    )
    assert reader.package == "a.b"
    assert reader.messages["One"] == (
        {
            "key": Field(1, "bytes", "optional", None),
            "more": Field(2, ".a.b.One", "repeated", None),
            "e": Field(3, ".a.b.One.E", "optional", None),
        },
        {"E": {"NO": 0, "YES": 1}},
    )
    assert reader.messages["Two"].fields["one"] == Field(4, ".a.b.One", "optional", "which")
    for wrong in ("option x = 1;", "message A { map<int64, bytes> m = 1; }", "message A { Nothing n = 1; }"):
        with pytest.raises(AssertionError):
            Reader(f'syntax = "proto3"; package a; {wrong}')


def test_the_file_is_the_same() -> None:
    file = compiled()
    assert file.name == protos.PROTO
    assert file.package == WRITTEN.package == "fencelock.etcd"
    assert file.syntax == "proto3"
    assert [message.name for message in file.message_type] == list(WRITTEN.messages)
    assert not file.enum_type
    assert not file.service


@pytest.mark.parametrize("message", compiled().message_type, ids=lambda message: str(message.name))
def test_a_message_is_the_same(message: Any) -> None:
    assert read(message) == WRITTEN.messages[message.name]


def test_the_types_for_checkers_are_the_same() -> None:
    tree = ast.parse((FOLDER / "rpc_pb2.pyi").read_text())
    found: dict[str, tuple[set[str], dict[str, set[str]]]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            enums = {
                inner.name: {
                    line.target.id
                    for line in inner.body
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
                }
                for inner in node.body
                if isinstance(inner, ast.ClassDef)
            }
            slots = next(line for line in node.body if isinstance(line, ast.Assign))
            found[node.name] = set(ast.literal_eval(slots.value)), enums
    assert found == {
        name: (set(fields), {each: set(values) for each, values in enums.items()})
        for name, (fields, enums) in WRITTEN.messages.items()
    }


def test_every_protobuf_that_the_extra_allows_can_load_it() -> None:
    line = re.search(
        r"^# Protobuf Python Version: (\d+)\.(\d+)", (FOLDER / "rpc_pb2.py").read_text(), re.MULTILINE
    )
    settings = (FOLDER.parents[3] / "pyproject.toml").read_text()
    least = re.search(r'"protobuf>=(\d+)\.(\d+)"', settings)
    assert line is not None
    assert least is not None
    assert tuple(map(int, line.groups())) <= tuple(map(int, least.groups()))


# tools/protos.py -------------------------------------------------------------------------------


def test_the_tool_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was run all the same")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", never)
    assert protos.main() == 69
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "grpcio-tools is missing: pip install 'grpcio-tools==1.62.*'\n"


def test_the_tool_runs_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[str], Path]] = []

    def run(command: list[str], *, cwd: Path, check: bool) -> Any:
        ran.append((command, cwd))
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "grpc_tools" else None)
    monkeypatch.setattr(subprocess, "run", run)
    assert protos.main() == 3
    ((command, folder),) = ran
    assert command[1:] == [*protos.COMMAND]
    assert "-Isrc --python_out=src --pyi_out=src" in " ".join(command)
    assert (folder / "src" / protos.PROTO).samefile(FOLDER / "rpc.proto")
