#!/usr/bin/env python3
"""Makes seeds for decode_fuzz from protocol/golden.tsv: golden_corpus.py OUTPUT_DIR."""
import argparse
import csv
import pathlib
import sys

PROTOCOL = pathlib.Path(__file__).resolve().parents[2] / "protocol"
sys.path.insert(0, str(PROTOCOL))
sys.dont_write_bytecode = True
import generate  # noqa: E402  (its place is known only now)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output_dir", type=pathlib.Path)
    out_dir = parser.parse_args().output_dir
    out_dir.mkdir(parents=True, exist_ok=True)
    apis, records, headers = generate.load()
    messages = [m for a in apis for m in (a.request, a.response)] + records + headers
    roots = sorted((m.root for m in messages), key=lambda root: root.name)  # the order of wire_schemas[]
    index = {root.name: i for i, root in enumerate(roots)}
    csv.field_size_limit(1 << 30)
    with open(PROTOCOL / "golden.tsv", newline="") as f:
        for row in csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE):
            name = row["name"] + (row["kind"].capitalize() if row["kind"] in ("request", "response") else "")
            root = roots[index[name]]
            version = int(row["version"])
            seed = index[name].to_bytes(2, "big") + bytes([version - root.versions[0]]) + bytes.fromhex(row["hex"])
            (out_dir / f"{name}-{version}-{row['fill']}").write_bytes(seed)


if __name__ == "__main__":
    main()
