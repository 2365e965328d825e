#!/usr/bin/env python3
"""Makes the C structs and constant tables of the wire codec from the schemas beside this file.

    generate.py OUTPUT_DIR

writes OUTPUT_DIR/*.h and *.c (the names that cmake/generate.cmake lists).  README.md says what is made of what.
The parser keeps to the notation strictly: what it does not know is an error with file and line.
"""
import argparse
import csv
import dataclasses
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent

C_KEYWORDS = set("""auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool
true false""".split())

# A type of the schemas: its enum constant, its C type, its bytes on the wire if fixed.
SCALARS = {
    "bool": ("WIRE_BOOL", "bool", 1),
    "int8": ("WIRE_INT8", "int8_t", 1),
    "int16": ("WIRE_INT16", "int16_t", 2),
    "uint16": ("WIRE_UINT16", "uint16_t", 2),
    "int32": ("WIRE_INT32", "int32_t", 4),
    "uint32": ("WIRE_UINT32", "uint32_t", 4),
    "int64": ("WIRE_INT64", "int64_t", 8),
    "float64": ("WIRE_FLOAT64", "double", 8),
    "uuid": ("WIRE_UUID", "struct uuid", 16),
    "string": ("WIRE_STRING", "struct str", None),
    "bytes": ("WIRE_BYTES", "struct bytes", None),
    "records": ("WIRE_RECORDS", "struct records", None),
}

# Messages besides coordinator keys and values whose bodies follow a version.
VERSION_PREFIXED = {"ConsumerProtocolSubscription", "ConsumerProtocolAssignment", "DefaultPrincipalData",
                    "EndTxnMarker", "ControlRecordTypeSchema"}
# Members of a group may be newer than we are; Kafka reads what it knows of their messages.
NEWER_IS_LAST = {"ConsumerProtocolSubscription", "ConsumerProtocolAssignment"}

VERSIONS_MAX = 32  # bits of a set


class SchemaError(Exception):
    pass


def snake(name):
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def json_name(name):
    return name[0].lower() + name[1:]


def parse_range(text, newest=VERSIONS_MAX - 1):
    """A set of versions as (min, max); none is (0, -1)."""
    if text == "none":
        return (0, -1)
    m = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
    if not m:
        raise SchemaError(f"not a range of versions: {text}")
    low = int(m[1])
    high = newest if m[2] else int(m[3]) if m[3] else low
    if high >= VERSIONS_MAX:
        raise SchemaError(f"version {high} is above {VERSIONS_MAX - 1}")
    return (low, high)


def mask(versions):
    return sum(1 << v for v in range(versions[0], versions[1] + 1))


def cut(a, b):
    return (max(a[0], b[0]), min(a[1], b[1]))


def holds(outer, inner):
    return inner[0] > inner[1] or (outer[0] <= inner[0] and inner[1] <= outer[1])


def pairs(words, keys, flags):
    """`key value` pairs and bare words after a line's fixed ones."""
    out = {}
    words = list(words)
    while words:
        word = words.pop(0)
        if word in flags:
            out[word] = True
        elif word in keys and words:
            out[word] = words.pop(0)
        else:
            raise SchemaError(f"unexpected word: {word}")
    return out


@dataclasses.dataclass
class Field:
    name: str
    type: str  # without []
    array: bool
    versions: tuple
    nullable: tuple
    tag: int
    tagged: tuple
    default: str
    classic: bool
    ignorable: bool
    flexible: tuple = None  # the message's
    struct: "Struct" = None
    children: list = dataclasses.field(default_factory=list)

    @property
    def c_name(self):
        name = snake(self.name)
        return name + "_" if name in C_KEYWORDS else name

    @property
    def is_struct(self):
        return self.type not in SCALARS

    @property
    def pointer(self):
        return self.is_struct and not self.array and mask(self.nullable) != 0


@dataclasses.dataclass
class Struct:
    name: str        # ProduceRequest.TopicProduceData
    c_name: str
    versions: tuple  # the message's
    flexible: tuple
    fields: list
    record_id: int = -1
    prefix: str = None  # None, "id" or "version"
    has_records: bool = False


@dataclasses.dataclass
class Message:
    root: Struct
    structs: list  # each before those that use it, the root last


@dataclasses.dataclass
class Api:
    key: int
    name: str
    options: dict
    request: Message = None
    response: Message = None
    headers: dict = dataclasses.field(default_factory=dict)


class Block:
    """One message's lines: what stands at level 0, its fields, its shared structs."""

    def __init__(self, name, options):
        self.name, self.options, self.fields, self.shared = name, options, [], {}


def parse_field(words):
    if len(words) < 3:
        raise SchemaError("a field needs a name, a type and its versions")
    name, type_, versions = words[:3]
    o = pairs(words[3:], {"nullable", "tag", "tagged", "default", "flexible", "entity"},
              {"ignorable", "mapKey", "zeroCopy"})
    if ("tag" in o) != ("tagged" in o) or o.get("flexible", "none") != "none":
        raise SchemaError("tag without tagged, or flexible other than none")
    array = type_.startswith("[]")
    return Field(name, type_[2:] if array else type_, array, parse_range(versions),
                 parse_range(o.get("nullable", "none")), int(o.get("tag", -1)), parse_range(o.get("tagged", "none")),
                 o.get("default"), "flexible" in o, "ignorable" in o)


def parse_file(path):
    """A file's level-0 lines as a list of (keyword, Block or words)."""
    blocks, stack = [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            indent = len(line) - len(line.lstrip(" "))
            words = line.split()
            if not words or indent % 2:
                raise SchemaError("an empty line, or an indentation that is not even")
            if indent == 0:
                stack = [parse_head(words, blocks)]
                continue
            level = indent // 2
            if not stack or stack[0] is None or level > len(stack):
                raise SchemaError("indented too far")
            field = parse_field(words)
            del stack[level:]
            stack[-1].append(field)
            stack.append(field.children)
        except (SchemaError, ValueError) as e:
            raise SchemaError(f"{path}:{number}: {e}") from None
    return blocks


def parse_head(words, blocks):
    """Reads a level-0 line and returns the list that its fields go to, None where there can be none."""
    keyword = words[0]
    if keyword == "api":
        options = pairs(words[3:], {"listeners", "v391", "v431", "deprecated", "unstable"},
                        {"clusterAction", "forwardable"})
        blocks.append((keyword, Block(words[2], options | {"key": int(words[1])})))
        return None
    if keyword == "struct":
        shared = []
        blocks[-1][1].shared[words[1]] = shared
        return shared
    if keyword in ("request", "response"):
        block = Block(None, pairs(words[1:], {"versions", "flexible", "header"}, set()))
    elif keyword == "record":
        block = Block(words[1], pairs(words[2:], {"module", "kind", "id", "versions", "flexible", "v391", "v431"},
                                      set()))
    elif keyword == "header":
        block = Block(words[1], pairs(words[2:], {"versions", "flexible"}, set()))
    else:
        raise SchemaError(f"unknown keyword: {keyword}")
    blocks.append((keyword, block))
    return block.fields


class Resolver:
    """Turns a Block into a Message: gives each struct its name and its fields their structs."""

    def __init__(self, block, name):
        self.block, self.name = block, name
        self.versions = parse_range(block.options["versions"])
        self.flexible = cut(parse_range(block.options["flexible"]), self.versions)
        self.done = {}
        self.order = []

    def message(self):
        root = self.struct(self.name, snake(self.name), self.block.fields)
        return Message(root, self.order)

    def struct(self, name, c_name, fields):
        s = Struct(name, c_name, self.versions, self.flexible, fields)
        seen = set()
        for f in fields:
            if f.c_name in seen:
                raise SchemaError(f"{name}: {f.name} is there twice")
            seen |= {f.c_name, f.c_name + "_count"} if f.array else {f.c_name}
            self.field(s, f)
        self.order.append(s)
        return s

    def field(self, s, f):
        f.flexible = self.flexible
        f.versions = cut(f.versions, self.versions)
        f.nullable = cut(f.nullable, f.versions)
        f.tagged = cut(f.tagged, f.versions)
        if not holds(self.flexible, f.tagged):
            raise SchemaError(f"{s.name}.{f.name}: tagged in a version that is not flexible")
        if f.default == "null" and not f.nullable[1] >= f.nullable[0]:
            raise SchemaError(f"{s.name}.{f.name}: default null, but never nullable")
        if not f.is_struct:
            if f.children:
                raise SchemaError(f"{s.name}.{f.name}: {f.type} has no fields")
            if f.type == "records":
                self.check_records(s, f)
            return
        if f.children and f.type in self.block.shared:
            raise SchemaError(f"{f.type} is defined twice")
        if f.type not in self.done:
            children = f.children or self.block.shared.get(f.type)
            if not children:
                raise SchemaError(f"{s.name}.{f.name}: unknown type {f.type}")
            self.done[f.type] = None
            self.done[f.type] = self.struct(f"{self.name}.{f.type}", f"{snake(self.name)}_{snake(f.type)}", children)
        elif f.children:
            raise SchemaError(f"{f.type} is defined twice")
        f.struct = self.done[f.type]
        if f.struct is None:
            raise SchemaError(f"{f.type} holds itself: the depth of messages must be bounded")
        if f.struct.has_records:
            self.check_records(s, f)

    def check_records(self, s, f):
        """The encoder gives every splice to the writer, so no version may lack a field that records are in."""
        s.has_records = True
        if f.versions != self.versions or (f.array and not f.is_struct):
            raise SchemaError(f"{s.name}.{f.name}: records must be one value, in every version")


def wire_size_min(f, version):
    """The least bytes of one value of a field, or of one element."""
    compact = f_compact(f, version)
    if f.array or f.type in ("string", "bytes", "records"):
        return 1 if compact else 2 if f.type == "string" and not f.array else 4
    return element_size_min(f, version)


def f_compact(f, version):
    return not f.classic and f.flexible[0] <= version <= f.flexible[1]


def element_size_min(f, version):
    compact = f_compact(f, version)
    if f.is_struct:
        mark = f.pointer and f.nullable[0] <= version <= f.nullable[1]
        return 1 if mark else struct_size_min(f.struct, version)
    if f.type == "string":
        return 1 if compact else 2
    if f.type in ("bytes", "records"):
        return 1 if compact else 4
    return SCALARS[f.type][2]


def struct_size_min(s, version):
    size = 0
    for f in s.fields:
        in_line = f.versions[0] <= version <= f.versions[1] and not f.tagged[0] <= version <= f.tagged[1]
        if in_line:
            size += wire_size_min(f, version)
    return size + (1 if s.flexible[0] <= version <= s.flexible[1] else 0)


def check_array_elements(s):
    """An element of no bytes would let a count of two billion through."""
    for f in s.fields:
        if f.array and f.is_struct:
            for v in range(f.versions[0], f.versions[1] + 1):
                if struct_size_min(f.struct, v) == 0:
                    raise SchemaError(f"{s.name}.{f.name}: empty elements in version {v}")


def load_message(block, name):
    try:
        m = Resolver(block, name).message()
        for s in m.structs:
            check_array_elements(s)
        return m
    except SchemaError as e:
        raise SchemaError(f"{name}: {e}") from None


def load():
    """All schemas: (apis, records, headers)."""
    apis, records, headers = [], [], []
    for path in sorted((HERE / "api").glob("*.msg")):
        (_, head), *bodies = parse_file(path)
        api = Api(head.options["key"], head.name, head.options)
        for keyword, block in bodies:
            setattr(api, keyword, load_message(block, api.name + keyword.capitalize()))
            api.headers[keyword] = parse_headers(block.options["header"], parse_range(block.options["versions"]))
        apis.append(api)
    for path in sorted((HERE / "record").glob("*.msg")):
        for _, block in parse_file(path):
            m = load_message(block, block.name)
            kind = block.options["kind"]
            if kind.startswith("coordinator-"):
                m.root.record_id = int(block.options["id"])
            if kind == "coordinator-key":
                m.root.prefix = "id"
            elif kind == "coordinator-value" or block.name in VERSION_PREFIXED:
                m.root.prefix = "version"
            records.append(m)
    for path in sorted((HERE / "header").glob("*.msg")):
        headers += [load_message(block, block.name) for _, block in parse_file(path)]
    apis.sort(key=lambda api: api.key)
    check_names([m for api in apis for m in (api.request, api.response)] + records + headers)
    return apis, records, headers


def check_names(messages):
    seen = set()
    for m in messages:
        for s in m.structs:
            if s.c_name in seen:
                raise SchemaError(f"{s.name}: two structs are called {s.c_name} in C")
            seen.add(s.c_name)


def parse_headers(text, versions):
    """`1:0-8,2:9+` as one digit a version, from the first version on."""
    digits = {}
    for part in text.split(","):
        header, _, span = part.partition(":")
        low, high = cut(parse_range(span), versions)
        for v in range(low, high + 1):
            digits[v] = header
    return "".join(digits[v] for v in range(versions[0], versions[1] + 1))


# ---------------------------------------------------------------------------------------------------------------- C

def c_int(type_, value):
    n = int(value)
    if type_ == "int64":
        return f"INT64_C({n})"
    if n == -(2 ** 31):
        return "INT32_MIN"
    return str(n)


def default_text(s):
    """A C initialiser of a struct's defaults; C lets no constant be made of another, so nested ones are written out."""
    parts = []
    for f in s.fields:
        value = field_default(f)
        if value is not None:
            parts.append(f".{f.c_name}{value}")
    return "{" + ", ".join(parts) + "}" if parts else "{0}"


def field_default(f):
    if f.array:
        return "_count = -1" if f.default == "null" else None
    if f.is_struct:
        if f.pointer:
            # A nullable struct that starts out there: the constant itself, never written through.
            return None if f.default == "null" else f" = (struct {f.struct.c_name} *)&{f.struct.c_name}_default"
        inner = default_text(f.struct)
        return None if inner == "{0}" else f" = {inner}"
    if f.type in ("string", "bytes"):
        if f.default == "null":
            return None
        return ' = {"", 0}' if f.type == "string" else ' = {(const uint8_t *)"", 0}'
    if f.type in ("records", "uuid") or f.default in (None, "0", "false"):
        return None
    if f.type == "bool":
        return " = true"
    return f" = {c_int(f.type, f.default)}"


def struct_decl(s):
    lines = [f"struct {s.c_name} {{"]
    for f in s.fields:
        type_ = f"struct {f.struct.c_name}" if f.is_struct else SCALARS[f.type][1]
        if f.array:
            lines.append(f"    {type_} *{f.c_name};")
            lines.append(f"    int32_t {f.c_name}_count;")
        else:
            lines.append(f"    {type_} {'*' if f.pointer else ''}{f.c_name};")
    if not s.fields:
        lines.append("    char no_fields;")
    lines.append("};")
    lines.append(f"extern const struct {s.c_name} {s.c_name}_default;")
    return "\n".join(lines) + "\n"


def calls(m):
    """Typed names of the interpreter's calls for one message."""
    s = m.root
    n = s.c_name
    text = f"""
extern const struct wire_schema {n}_schema;

MUST_USE static inline enum err {n}_decode(struct {n} *out, int16_t version, struct reader *r, struct arena *a)
{{
    return wire_decode(&{n}_schema, out, version, r, a);
}}

MUST_USE static inline enum err {n}_encode(const struct {n} *m, int16_t version, struct writer *w)
{{
    return wire_encode(&{n}_schema, m, version, w);
}}

static inline void {n}_print(const struct {n} *m, int16_t version, struct writer *w, enum wire_print how)
{{
    wire_print(&{n}_schema, m, version, w, how);
}}
"""
    if s.record_id >= 0:
        text += f"\nenum {{ {n.upper()}_ID = {s.record_id} }};\n"
    if s.prefix == "id":
        text += f"""
MUST_USE static inline enum err {n}_decode_prefixed(struct {n} *out, struct reader *r, struct arena *a)
{{
    return wire_decode_prefixed(&{n}_schema, out, NULL, r, a);
}}

MUST_USE static inline enum err {n}_encode_prefixed(const struct {n} *m, struct writer *w)
{{
    return wire_encode_prefixed(&{n}_schema, m, {s.versions[1]}, w);
}}
"""
    elif s.prefix == "version":
        text += f"""
MUST_USE static inline enum err {n}_decode_prefixed(struct {n} *out, int16_t *version, struct reader *r,
                                                    struct arena *a)
{{
    return wire_decode_prefixed(&{n}_schema, out, version, r, a);
}}

MUST_USE static inline enum err {n}_encode_prefixed(const struct {n} *m, int16_t version, struct writer *w)
{{
    return wire_encode_prefixed(&{n}_schema, m, version, w);
}}
"""
    return text


def message_header(file_name, what, messages):
    guard = f"WIRE_GEN_{file_name.upper()}_H"
    parts = [f"/* {what}  Made by protocol/generate.py. */\n#ifndef {guard}\n#define {guard}\n\n#include \"wire/codec.h\"\n"]
    for m in messages:
        s = m.root
        parts.append(f"\n/* {s.name}, versions {s.versions[0]} to {s.versions[1]}. */\n"
                     f"enum {{ {s.c_name.upper()}_VERSION_MIN = {s.versions[0]}, "
                     f"{s.c_name.upper()}_VERSION_MAX = {s.versions[1]} }};\n")
        parts += ["\n" + struct_decl(s) for s in m.structs]
        parts.append(calls(m))
    parts.append("\n#endif\n")
    return "".join(parts)


def field_row(s, f):
    type_ = "WIRE_STRUCT" if f.is_struct else SCALARS[f.type][0]
    flags = [name for name, on in (("WIRE_ARRAY", f.array), ("WIRE_POINTER", f.pointer), ("WIRE_CLASSIC", f.classic),
                                   ("WIRE_IGNORABLE", f.ignorable)) if on]
    tagged = mask(f.tagged)
    parts = [f'"{json_name(f.name)}"',
             f"&{f.struct.c_name}_schema" if f.is_struct else "NULL",
             hex(mask(f.versions) & ~tagged), hex(tagged), hex(mask(f.nullable)),
             f"offsetof(struct {s.c_name}, {f.c_name})",
             f"offsetof(struct {s.c_name}, {f.c_name}_count)" if f.array else "0",
             type_, " | ".join(flags) or "0", str(max(f.tag, 0))]
    return "    {" + ", ".join(parts) + "},\n"


def struct_tables(s, is_root):
    n = s.c_name
    out = [f"const struct {n} {n}_default = {default_text(s)};\n"]
    if s.fields:
        out.append(f"static const struct wire_field {n}_fields[] = {{\n")
        out += [field_row(s, f) for f in s.fields]
        out.append("};\n")
    tagged = sorted((f.tag, i) for i, f in enumerate(s.fields) if mask(f.tagged))
    if len({tag for tag, _ in tagged}) != len(tagged) or any(tag > 126 for tag, _ in tagged):
        raise SchemaError(f"{s.name}: a tag is there twice or too high")
    if tagged:
        out.append(f"static const uint8_t {n}_by_tag[] = {{{', '.join(str(i) for _, i in tagged)}}};\n")
    sizes = ", ".join(str(struct_size_min(s, v)) for v in range(s.versions[1] + 1))
    out.append(f"static const uint16_t {n}_size_mins[] = {{{sizes}}};\n")
    out.append(f"{'' if is_root else 'static '}const struct wire_schema {n}_schema = {{\n"
               f'    .name = "{s.name}",\n'
               f"    .default_value = &{n}_default,\n"
               f"    .fields = {n + '_fields' if s.fields else 'NULL'},\n"
               f"    .by_tag = {n + '_by_tag' if tagged else 'NULL'},\n"
               f"    .size_mins = {n}_size_mins,\n"
               f"    .flexible = {hex(mask(s.flexible))},\n"
               f"    .size = sizeof(struct {n}),\n"
               f"    .field_count = {len(s.fields)},\n"
               f"    .tag_count = {len(tagged)},\n"
               f"    .version_min = {s.versions[0]},\n"
               f"    .version_max = {s.versions[1]},\n"
               f"    .record_id = {s.record_id if s.prefix == 'id' else -1},\n"
               f"    .newer_is_last = {'true' if s.name in NEWER_IS_LAST else 'false'},\n"
               "};\n\n")
    return "".join(out)


def tables_file(what, parts):
    """`parts`: (header name, messages)."""
    out = [f"/* {what}  Made by protocol/generate.py. */\n#include <stddef.h>\n\n"]
    out += [f'#include "wire/gen/{name}.h"\n' for name, _ in parts]
    out.append("\n")
    for _, messages in parts:
        for m in messages:
            out += [struct_tables(s, s is m.root) for s in m.structs]
    return "".join(out)


def api_keys_header(apis):
    rows = "".join(f"    API_{snake(a.name).upper()} = {a.key},\n" for a in apis)
    return ("/* The API keys.  Made by protocol/generate.py. */\n#ifndef WIRE_GEN_API_KEYS_H\n#define WIRE_GEN_API_KEYS_H\n\n"
            f"enum api {{\n{rows}    API_COUNT = {apis[-1].key + 1}\n}};\n\n#endif\n")


def apis_file(apis, parts):
    out = ["/* One row an API, and the list of all messages.  Made by protocol/generate.py. */\n#include \"wire/apis.h\"\n\n"]
    out += [f'#include "wire/gen/{name}.h"\n' for name, _ in parts]
    out.append("\nconst struct wire_api wire_apis[API_COUNT] = {\n")
    for a in apis:
        request, response = a.request.root, a.response.root
        if request.versions != response.versions:
            raise SchemaError(f"{a.name}: request and response differ in versions")
        v391, v431 = parse_range(a.options["v391"]), parse_range(a.options["v431"])
        listeners = " | ".join(f"WIRE_ON_{snake(x).upper()}" for x in a.options["listeners"].split(","))
        flexible_min = request.flexible[0] if mask(request.flexible) else request.versions[1] + 1
        out.append(f"    [API_{snake(a.name).upper()}] = {{\n"
                   f"        .key = {a.key},\n"
                   f'        .name = "{a.name}",\n'
                   f"        .v391_min = {v391[0]},\n        .v391_max = {v391[1]},\n"
                   f"        .v431_min = {v431[0]},\n        .v431_max = {v431[1]},\n"
                   f"        .request_min = {request.versions[0]},\n        .request_max = {request.versions[1]},\n"
                   f"        .flexible_min = {flexible_min},\n"
                   f"        .unstable = {hex(mask(parse_range(a.options['unstable'])))},\n"
                   f"        .listeners = {listeners},\n"
                   f"        .cluster_action = {str('clusterAction' in a.options).lower()},\n"
                   f"        .forwardable = {str('forwardable' in a.options).lower()},\n"
                   f'        .request_headers = "{a.headers["request"]}",\n'
                   f'        .response_headers = "{a.headers["response"]}",\n'
                   f"        .request = &{request.c_name}_schema,\n"
                   f"        .response = &{response.c_name}_schema,\n    }},\n")
    out.append("};\n\nconst struct wire_schema *const wire_schemas[] = {\n")
    names = sorted((m.root.name, m.root.c_name) for _, messages in parts for m in messages)
    out += [f"    &{c_name}_schema,\n" for _, c_name in names]
    out.append(f"}};\n\nconst int wire_schema_count = {len(names)};\n")
    return "".join(out)


def error_rows():
    with open(HERE / "errors.tsv", newline="") as f:
        return sorted(csv.DictReader(f, delimiter="\t"), key=lambda row: int(row["code"]))


def kerr_header(rows):
    codes = "".join(f"    KERR_{r['name']} = {r['code']},\n" for r in rows)
    return ("/* Kafka's error codes.  Made by protocol/generate.py. */\n#ifndef WIRE_GEN_KERR_CODES_H\n"
            f"#define WIRE_GEN_KERR_CODES_H\n\nenum kerr {{\n{codes}    KERR_MIN = {rows[0]['code']},\n"
            f"    KERR_MAX = {rows[-1]['code']}\n}};\n\n#endif\n")


def kerr_file(rows):
    out = ["/* One row an error code.  Made by protocol/generate.py. */\n#include \"wire/kerr.h\"\n\n"
           "const struct kerr_row kerr_rows[KERR_MAX - KERR_MIN + 1] = {\n"]
    for r in rows:
        flags = ["true" if r[key] == "yes" else "false" for key in ("retriable", "refresh_metadata")]
        out.append(f"    [KERR_{r['name']} - KERR_MIN] = {{\"{r['name']}\", {flags[0]}, {flags[1]}}},\n")
    out.append("};\n")
    return "".join(out)


def main():
    parser = argparse.ArgumentParser(description="Makes the C structs and tables of the wire codec.")
    parser.add_argument("output_dir", type=pathlib.Path, help="where the .h and .c files go")
    out_dir = parser.parse_args().output_dir
    out_dir.mkdir(parents=True, exist_ok=True)
    apis, records, headers = load()
    api_parts = [(snake(a.name), [a.request, a.response]) for a in apis]
    record_parts = [(m.root.c_name, [m]) for m in records]
    header_parts = [(m.root.c_name, [m]) for m in headers]
    parts = api_parts + record_parts + header_parts
    files = {f"{name}.h": message_header(name, f"{messages[0].root.name} on the wire.", messages)
             for name, messages in parts}
    if len(files) != len(parts):
        raise SchemaError("two messages want the same header file")
    rows = error_rows()
    files |= {
        "api_keys.h": api_keys_header(apis),
        "kerr_codes.h": kerr_header(rows),
        "kerr_rows.c": kerr_file(rows),
        "apis.c": apis_file(apis, parts),
        "tables_api.c": tables_file("Tables of requests and responses.", api_parts),
        "tables_record.c": tables_file("Tables of records and headers.", record_parts + header_parts),
    }
    for name, text in files.items():
        (out_dir / name).write_text(text)


if __name__ == "__main__":
    try:
        main()
    except SchemaError as e:
        sys.exit(f"generate.py: {e}")
