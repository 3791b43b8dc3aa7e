"""Writes rpc_pb2.py and rpc_pb2.pyi of the etcd backend from its rpc.proto.

python tools/protos.py              write both files

Needs grpcio-tools, which nothing else here does: `pip install 'grpcio-tools==1.62.*'`. That series, because
generated code runs with the protobuf it was made for and newer ones: 1.62 makes it for protobuf 4.25.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

__all__ = ["COMMAND", "PROTO", "main"]

ROOT = Path(__file__).resolve().parents[1]
PROTO = "fencelock/backends/etcd/rpc.proto"
SERIES = "1.62"
COMMAND = ["-m", "grpc_tools.protoc", "-Isrc", "--python_out=src", "--pyi_out=src", PROTO]
MISSING = f"grpcio-tools is missing: pip install 'grpcio-tools=={SERIES}.*'"
EX_UNAVAILABLE = 69


def main() -> int:
    """Write the files; return the exit status."""
    if importlib.util.find_spec("grpc_tools") is None:
        print(MISSING, file=sys.stderr)
        return EX_UNAVAILABLE
    return subprocess.run([sys.executable, *COMMAND], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
