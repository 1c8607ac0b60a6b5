"""`python -m cudaspec OUT_DIR`: checks the specification and writes all files to OUT_DIR/gen."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cudaspec import generate, load, load_messages, load_nvml, lock, rows
from cudaspec.gen import docs, messages_md, messages_py, nvml


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cudaspec", description=__doc__)
    add = parser.add_argument
    add("out", nargs="?", type=Path, metavar="OUT_DIR", help="where `gen/` is written")
    add("--list", action="store_true", help="print the names of the files in `gen/`")
    add("--docs", type=Path, metavar="FILE", help="write the coverage page to FILE")
    add("--nvml", type=Path, metavar="FILE", help="write the page of NVML's functions to FILE")
    add("--dictionary", type=Path, metavar="FILE", help="write the fuzz dictionary to FILE")
    add("--wire", type=Path, metavar="FOLDER", help="write the Python codecs of messages there")
    add("--pages", type=Path, metavar="ROOT", help="write the tables of messages in pages of ROOT")
    add("--lock", action="store_true", help="append new opcodes to opcodes.lock")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(generate.ARTEFACTS))
        return 0
    try:
        if options.lock:
            for line in lock.append(load.read()):
                print(f"opcodes.lock: {line}")
        spec, messages = load.load(), load_messages.load()
        channels, management = load_messages.channels(), load_nvml.load()
    except rows.SpecError as error:
        print(f"cudaspec: {error}", file=sys.stderr)
        return 1
    if options.out:
        generate.write(spec, options.out / "gen")
    if options.docs:
        generate.write_file(options.docs, docs.coverage_md(spec))
    if options.nvml:
        generate.write_file(options.nvml, nvml.page_md(management))
    if options.dictionary:
        generate.write_file(options.dictionary, docs.dictionary(spec))
    if options.wire:
        for name, text in messages_py.modules(messages, channels.values()).items():
            generate.write_file(options.wire / name, text)
    if options.pages:
        for name in messages_md.PAGES:
            page = (options.pages / name).read_text(encoding="utf-8")
            generate.write_file(options.pages / name, messages_md.replaced(name, page))
    outputs = (
        *(options.out, options.docs, options.nvml),
        *(options.dictionary, options.wire, options.pages),
    )
    if not (any(outputs) or options.lock):
        parser.error(
            "say what to do: OUT_DIR, --docs FILE, --dictionary FILE, --list, --nvml FILE, "
            "--wire FOLDER, --pages ROOT or --lock"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
