"""Kafka's messages as Python dictionaries, encoded and decoded straight from the schemas in protocol/.

This is a second, independent reader of the schema notation (protocol/README.md): it interprets the schemas at run time,
shares no code with the broker's generated codec, and favours being obvious over being fast. Fields carry the schemas'
own names; a field left out of a dictionary gets its default.

    schema = message("Metadata")
    body = schema.request.encode({"Topics": None}, version=12)
    fields = schema.response.decode(payload, version=12);  fields.Topics[0].ErrorCode
"""

import functools
import os
import pathlib
import struct
import uuid

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PROTOCOL = pathlib.Path(os.environ.get("BARNABAS_PROTOCOL_DIR", REPOSITORY / "protocol"))

_FIXED = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
_NO_VERSION = range(0)
_LAST_VERSION = 1 << 15


class DecodeError(Exception):
    """The bytes do not hold what the schema says."""


class Fields(dict):
    """A struct: its fields as keys and as attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _versions(text):
    if text == "none":
        return _NO_VERSION
    if text.endswith("+"):
        return range(int(text[:-1]), _LAST_VERSION)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


class Reader:
    """Bytes with a position; reading past the end is a DecodeError."""

    def __init__(self, data):
        self.data, self.at = memoryview(data), 0

    def take(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise DecodeError(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def fixed(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise DecodeError("uvarint too long")

    @property
    def left(self):
        return len(self.data) - self.at


def uvarint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Field:
    def __init__(self, words):
        self.name, kind, versions = words[:3]
        self.is_array = kind.startswith("[]")
        self.kind = kind[2:] if self.is_array else kind
        self.versions = _versions(versions)
        pairs, at = {}, 3
        while at < len(words):
            if words[at] in ("ignorable", "mapKey", "zeroCopy"):
                at += 1
            else:
                pairs[words[at]] = words[at + 1]
                at += 2
        self.nullable = _versions(pairs.get("nullable", "none"))
        self.tag = int(pairs["tag"]) if "tag" in pairs else None
        self.tagged = _versions(pairs.get("tagged", "none"))
        self.classic = pairs.get("flexible") == "none"
        self.default_text = pairs.get("default")
        self.children = []  # of a struct defined in place

    def default(self):
        text = self.default_text
        if text == "null":
            return None
        if self.is_array:
            return []
        if self.kind == "bool":
            return text == "true"
        if self.kind == "float64":
            return float(text or 0)
        if self.kind in _FIXED:
            return int(text or 0)
        if self.kind == "string":
            return "" if text in (None, '""') else text
        if self.kind == "bytes":
            return b""
        if self.kind == "records":
            return None
        if self.kind == "uuid":
            return uuid.UUID(int=0)
        return {}


class Message:
    """One direction of an API (or a header): its fields and versions."""

    def __init__(self, words):
        pairs = dict(zip(words[0::2], words[1::2]))
        self.versions = _versions(pairs["versions"])
        self.flexible = _versions(pairs["flexible"])
        self.header_by_version = {}
        for entry in pairs.get("header", "").split(",") if "header" in pairs else ():
            header, _, versions = entry.partition(":")
            for version in _versions(versions):
                if version > self.versions.stop:
                    break
                self.header_by_version[version] = int(header)
        self.fields = []
        self.structs = {}

    def encode(self, values, version):
        assert version in self.versions, f"version {version} is not in the schema"
        out = bytearray()
        self._encode_struct(out, self.fields, values, version)
        return bytes(out)

    def decode(self, data, version, whole=True):
        reader = data if isinstance(data, Reader) else Reader(data)
        fields = self._decode_struct(reader, self.fields, version)
        if whole and reader.left:
            raise DecodeError(f"{reader.left} bytes behind the message")
        return fields

    # Encoding

    def _encode_struct(self, out, fields, values, version):
        unknown = set(values) - {field.name for field in fields}
        assert not unknown, f"no such fields: {unknown}"
        tagged = []
        for field in fields:
            if version not in field.versions:
                continue
            value = values.get(field.name, field.default())
            if version in field.tagged:
                if value not in (field.default(), self._tagged_default(field)):
                    part = bytearray()
                    self._encode_value(part, field, value, version, True)
                    tagged.append((field.tag, bytes(part)))
            else:
                self._encode_value(out, field, value, version, version in self.flexible and not field.classic)
        if version in self.flexible:
            out += uvarint(len(tagged))
            for tag, part in sorted(tagged):
                out += uvarint(tag) + uvarint(len(part)) + part

    def _encode_value(self, out, field, value, version, compact):
        if value is None:
            assert version in field.nullable, f"{field.name} cannot be null in version {version}"
        if field.is_array:
            self._encode_length(out, value, ">i", compact)
            for element in value or ():
                self._encode_element(out, field, element, version, compact)
        elif self._is_struct(field) and version in field.nullable:
            out += b"\xff" if value is None else b"\x01"
            if value is not None:
                self._encode_element(out, field, value, version, compact)
        else:
            self._encode_element(out, field, value, version, compact)

    def _encode_element(self, out, field, value, version, compact):
        if field.kind == "bool":
            out.append(1 if value else 0)
        elif field.kind in _FIXED:
            out += struct.pack(_FIXED[field.kind], value)
        elif field.kind == "uuid":
            out += value.bytes
        elif field.kind == "string":
            data = None if value is None else value if isinstance(value, bytes) else value.encode()
            self._encode_length(out, data, ">h", compact)
            out += data or b""
        elif field.kind in ("bytes", "records"):
            self._encode_length(out, value, ">i", compact)
            out += value or b""
        else:
            self._encode_struct(out, self._struct_fields(field), value, version)

    @staticmethod
    def _encode_length(out, value, form, compact):
        if compact:
            out += uvarint(0 if value is None else len(value) + 1)
        else:
            out += struct.pack(form, -1 if value is None else len(value))

    # Decoding

    def _decode_struct(self, reader, fields, version):
        values = Fields()
        by_tag = {}
        for field in fields:
            if version not in field.versions:
                continue
            if version in field.tagged:
                by_tag[field.tag] = field
                values[field.name] = self._tagged_default(field)
            else:
                values[field.name] = self._decode_value(
                    reader, field, version, version in self.flexible and not field.classic
                )
        if version in self.flexible:
            last = -1
            for _ in range(reader.uvarint()):
                tag, part = reader.uvarint(), Reader(reader.take(reader.uvarint()))
                if tag <= last:
                    raise DecodeError(f"tag {tag} after {last}")
                last = tag
                if tag in by_tag:
                    values[by_tag[tag].name] = self._decode_value(part, by_tag[tag], version, True)
                    if part.left:
                        raise DecodeError(f"{part.left} bytes behind tag {tag}")
        return values

    def _tagged_default(self, field):
        if not self._is_struct(field) or field.is_array:
            return field.default()
        return Fields((child.name, child.default()) for child in self._struct_fields(field))

    def _decode_value(self, reader, field, version, compact):
        if field.is_array:
            count = self._decode_length(reader, field, version, ">i", compact)
            return (
                None if count is None else [self._decode_element(reader, field, version, compact) for _ in range(count)]
            )
        if self._is_struct(field) and version in field.nullable and reader.fixed(">b") < 0:
            return None
        return self._decode_element(reader, field, version, compact)

    def _decode_element(self, reader, field, version, compact):
        if field.kind == "bool":
            return reader.take(1) != b"\0"
        if field.kind in _FIXED:
            return reader.fixed(_FIXED[field.kind])
        if field.kind == "uuid":
            return uuid.UUID(bytes=reader.take(16))
        if field.kind == "string":
            count = self._decode_length(reader, field, version, ">h", compact)
            return None if count is None else reader.take(count).decode()
        if field.kind in ("bytes", "records"):
            count = self._decode_length(reader, field, version, ">i", compact)
            return None if count is None else reader.take(count)
        return self._decode_struct(reader, self._struct_fields(field), version)

    @staticmethod
    def _decode_length(reader, field, version, form, compact):
        count = reader.uvarint() - 1 if compact else reader.fixed(form)
        if count == -1:
            # A response's records may be null wherever there are none; Kafka's own schema says so.
            if version not in field.nullable:
                raise DecodeError(f"{field.name} is null")
            return None
        if count < 0 or count > reader.left:
            raise DecodeError(f"{field.name}: length {count} with {reader.left} bytes left")
        return count

    def _is_struct(self, field):
        return field.kind not in _FIXED and field.kind not in ("bool", "uuid", "string", "bytes", "records")

    def _struct_fields(self, field):
        return field.children or self.structs[field.kind]


class Api:
    def __init__(self, key, name):
        self.key, self.name = key, name
        self.request = self.response = None


def _parse(path):
    """One schema file: an Api, or a dictionary with one header or record Message."""
    api, message, open_fields = None, None, {}
    for line in path.read_text().splitlines():
        level, words = (len(line) - len(line.lstrip(" "))) // 2, line.split()
        if not words:
            continue
        if level == 0:
            open_fields = {}
            if words[0] == "api":
                api = Api(int(words[1]), words[2])
            elif words[0] in ("request", "response"):
                message = Message(words[1:])
                setattr(api, words[0], message)
                open_fields[0] = message.fields
            elif words[0] in ("header", "record"):
                message = Message(words[2:])
                api = {words[1]: message}
                open_fields[0] = message.fields
            elif words[0] == "struct":
                open_fields[0] = message.structs.setdefault(words[1], [])
            continue
        field = _Field(words)
        open_fields[level - 1].append(field)
        open_fields[level] = field.children
    return api


@functools.cache
def _catalogue():
    apis, headers = {}, {}
    for path in sorted(PROTOCOL.rglob("*.msg")):
        with path.open() as file:
            keyword = file.readline().split()[:1]
        if keyword == ["api"]:
            api = _parse(path)
            apis[api.name] = api
        elif keyword == ["header"]:
            headers.update(_parse(path))
    assert apis and headers, f"no schemas under {PROTOCOL}"
    return apis, headers


def message(name):
    return _catalogue()[0][name]


def header(name):
    return _catalogue()[1][name]


@functools.cache
def record(name):
    """A message that stands in the records of a log: the body alone, without what goes before it."""
    return _parse(PROTOCOL / f"record/{name}.msg")[name]


def names():
    return sorted(_catalogue()[0])
