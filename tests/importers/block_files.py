"""Files of records as W&B and SwanLab write them."""

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

BLOCK, HEAD = 32768, 7


def write_records(path: Path, head: bytes, records: Iterable[bytes]) -> Path:
    """Write a file of records."""
    data = bytearray(head)
    for record in records:
        append_record(data, record)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def append_record(data: bytearray, record: bytes) -> None:
    """Append a record, in pieces that end with their block."""
    is_first = True
    while True:
        left = BLOCK - len(data) % BLOCK
        if left < HEAD:
            data += bytes(left)
            continue
        piece, record = record[: left - HEAD], record[left - HEAD :]
        kind = (1 if is_first else 4) if not record else (2 if is_first else 3)
        data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
        is_first = False
        if not record:
            return
