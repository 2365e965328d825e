"""Record batches of format 2: built (also wrongly, on purpose) and read back, for the tests of the raw client.

data = build([Record(b"key", b"value")], codec="lz4")
for batch in read(data): batch.base_offset, batch.records
"""

import gzip
import struct
import time
import zlib
from dataclasses import dataclass, field

import crc32c
import cramjam
import lz4.frame
import zstandard

from messages import DecodeError, Reader

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
_XERIAL = b"\x82SNAPPY\0"

assert HEADER_SIZE == 61


@dataclass
class Record:
    """One record. `timestamp` in ms since 1970; None stands for the batch's own."""

    key: bytes | None = None
    value: bytes | None = None
    headers: list = field(default_factory=list)
    timestamp: int | None = None
    offset: int = -1


@dataclass
class Batch:
    base_offset: int
    leader_epoch: int
    crc_ok: bool
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    records: list
    size: int

    @property
    def codec(self):
        return CODECS[self.attributes & 7]

    @property
    def log_append_time(self):
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def last_offset(self):
        return self.base_offset + self.last_offset_delta


def varint(value):
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_of(reader):
    value = reader.uvarint()
    return (value >> 1) ^ -(value & 1)


def _nullable(data):
    return varint(-1) if data is None else varint(len(data)) + data


def record_bytes(record, timestamp_delta, offset_delta):
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + _nullable(record.key) + _nullable(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        name = name.encode() if isinstance(name, str) else name
        body += varint(len(name)) + name + _nullable(value)
    return varint(len(body)) + body


def compress(codec, data):
    if codec == "gzip":
        return gzip.compress(data)
    if codec == "snappy":
        return _XERIAL + struct.pack(">ii", 1, 1) + _snappy_block(data)
    if codec == "lz4":
        return lz4.frame.compress(data, block_linked=False)
    if codec == "zstd":
        return zstandard.compress(data)
    return data


def _snappy_block(data):
    block = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(block)) + block


def decompress(codec, data):
    if codec == "gzip":
        return zlib.decompress(data, 31)
    if codec == "snappy":
        if not data.startswith(_XERIAL):
            return bytes(cramjam.snappy.decompress_raw(data))
        out, at = bytearray(), 16
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return bytes(out)
    if codec == "lz4":
        return lz4.frame.decompress(data)
    if codec == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def now_ms():
    return int(time.time() * 1000)


def build(
    records,
    codec="none",
    *,
    base_offset=0,
    leader_epoch=-1,
    magic=2,
    attributes=0,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    timestamp=None,
    payload=None,
    count=None,
    last_offset_delta=None,
    offset_deltas=None,
    length=None,
    crc=None,
):
    """A batch of `records`; everything a wrong batch may want to say differently has an argument of its own.

    `payload` replaces the (compressed) records; `count`, `last_offset_delta`, `offset_deltas`, `length`, `crc` lie."""
    base = now_ms() if timestamp is None else timestamp
    times = [base if record.timestamp is None else record.timestamp for record in records]
    base = times[0] if times else base
    if payload is None:
        deltas = offset_deltas or range(len(records))
        plain = b"".join(record_bytes(r, t - base, delta) for r, t, delta in zip(records, times, deltas))
        payload = compress(codec, plain)
    count = len(records) if count is None else count
    tail = struct.pack(
        ">hiqqqhii",
        attributes | CODECS.index(codec),
        (len(records) - 1 if records else 0) if last_offset_delta is None else last_offset_delta,
        base,
        max(times, default=base),
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    tail += payload
    crc = crc32c.crc32c(tail) if crc is None else crc
    length = len(tail) + 9 if length is None else length
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc) + tail


def read(data):
    """The whole batches in a fetch's bytes; a cut-off one at the end is left out, as consumers do."""
    found, at = [], 0
    while at + 12 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        found.append(_read_batch(data[at : at + 12 + length]))
        assert found[-1].base_offset == base_offset
        at += 12 + length
    return found


def records_of(data):
    return [record for batch in read(data) for record in batch.records]


def _read_batch(data):
    (base, _, epoch, magic, crc, attributes, last, first_time, max_time, pid, pepoch, seq, count) = HEADER.unpack_from(
        data
    )
    if magic != 2:
        raise DecodeError(f"magic {magic}")
    reader = Reader(decompress(CODECS[attributes & 7], bytes(data[HEADER_SIZE:])))
    records = []
    for _ in range(count):
        record = _read_record(reader, base, first_time)
        if attributes & LOG_APPEND_TIME:
            record.timestamp = max_time
        records.append(record)
    if reader.left:
        raise DecodeError(f"{reader.left} bytes behind the last record")
    crc_ok = crc32c.crc32c(bytes(data[21:])) == crc
    return Batch(
        base, epoch, crc_ok, attributes, last, first_time, max_time, pid, pepoch, seq, count, records, len(data)
    )


def _read_record(reader, base_offset, base_time):
    reader = Reader(reader.take(_varint_of(reader)))
    reader.take(1)
    timestamp = base_time + _varint_of(reader)
    offset = base_offset + _varint_of(reader)
    key, value = _read_nullable(reader), _read_nullable(reader)
    headers = []
    for _ in range(_varint_of(reader)):
        headers.append((_read_nullable(reader).decode(), _read_nullable(reader)))
    if reader.left:
        raise DecodeError("bytes behind a record")
    return Record(key, value, headers, timestamp, offset)


def _read_nullable(reader):
    count = _varint_of(reader)
    return None if count < 0 else reader.take(count)
