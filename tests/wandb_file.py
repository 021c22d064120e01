"""What wandb leaves of an offline run, read back from its file. Loaded by path (`runpy`)."""

import time
import zlib


def records(path):
    """Records of a .wandb file: LevelDB log blocks of 32 KiB after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    place, parts, found = 7, b"", []
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        crc = int.from_bytes(data[place : place + 4], "little")
        length = int.from_bytes(data[place + 4 : place + 6], "little")
        kind, body = data[place + 6], data[place + 7 : place + 7 + length]
        assert crc == zlib.crc32(bytes([kind]) + body)
        place += 7 + length
        parts = body if kind in (1, 2) else parts + body
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            found.append(record)
    return found


def run_of(folder):
    """Records of the folder's finished run; the file may be flushed a moment after `finish`."""
    file = next(folder.glob("wandb/offline-run-*/run-*.wandb"))
    for _ in range(100):
        found = records(file)
        if any(record.HasField("exit") for record in found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"no exit record in {file}")
