"""Static facts of a CPU kernel: object-code hash and size, and a hash of the recipe around it; no timing, no noise.

The hash covers what the processor runs and reads (executable and read-only sections of the shared library, which
functions of other libraries it calls) and nothing that a rename, a comment or a path changes. It reads ELF64 itself
(System V ABI, "Object Files"), so no disassembler is needed. A changed hash only means that timing decides.
"""

from __future__ import annotations

import ast
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SHF_ALLOC, _SHF_EXECINSTR = 0x2, 0x4
_SHT_NOBITS, _SHT_DYNSYM, _SHT_NOTE = 8, 11, 7
_CODE_LIKE = (".rodata", ".data", ".init_array", ".fini_array")


@dataclass(frozen=True, slots=True)
class Section:
    """One section of an ELF file that is loaded to run."""

    name: str
    kind: int
    flags: int
    link: int
    data: bytes


def read_sections(image: bytes) -> list[Section]:
    """All sections of a 64-bit little-endian ELF image; raises ValueError for anything else."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table_at,) = struct.unpack_from("<Q", image, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQII", image, table_at + i * entry_size) for i in range(count)]
    names_at = headers[names_index][4]
    sections = []
    for name_at, kind, flags, _address, offset, size, link, _info in headers:
        end = image.index(b"\0", names_at + name_at)
        name = image[names_at + name_at : end].decode()
        data = b"" if kind == _SHT_NOBITS else image[offset : offset + size]
        sections.append(Section(name, kind, flags, link, data))
    return sections


def imported_names(sections: list[Section]) -> list[str]:
    """Undefined dynamic symbols: the functions of other libraries that this one calls."""
    names = []
    for section in sections:
        if section.kind == _SHT_DYNSYM:
            strings = sections[section.link].data
            for at in range(0, len(section.data), 24):
                name_at, _info, _other, index = struct.unpack_from("<IBBH", section.data, at)
                if index == 0 and name_at:
                    names.append(strings[name_at : strings.index(b"\0", name_at)].decode())
    return sorted(names)


def object_code(image: bytes) -> dict[str, float | str]:
    """The normalised hash and the size of a shared library's machine code."""
    sections = read_sections(image)
    digest = hashlib.sha256()
    text_bytes = 0
    for section in sections:
        executable = bool(section.flags & _SHF_EXECINSTR)
        if section.flags & _SHF_ALLOC and (executable or section.name.startswith(_CODE_LIKE)):
            digest.update(section.name.encode() + b"\0" + section.data)
            text_bytes += len(section.data) if executable else 0
    digest.update("\n".join(imported_names(sections)).encode())
    return {"code_hash": digest.hexdigest()[:20], "text_bytes": float(text_bytes)}


def recipe_hash(files: list[Path], extra: tuple[str, ...]) -> str:
    """Hash of what surrounds the machine code: the Python files as syntax trees (no comments, no docstrings), flags."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(_normal_form(path.read_text(encoding="utf-8")).encode() + b"\0")
    for text in extra:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:20]


def _normal_form(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def python_closure(root: Path, start: Path) -> list[Path]:
    """The file and every module of the suite that it imports, followed to the end through relative imports."""
    found: dict[Path, None] = {}
    waiting = [start.resolve()]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found[path] = None
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = path.parents[node.level - 1]
                base = folder.joinpath(*node.module.split(".")) if node.module else folder
                waiting += [base.with_suffix(".py"), base / "__init__.py"]
                waiting += [base / f"{alias.name}.py" for alias in node.names]
    return [path for path in found if path.is_relative_to(root.resolve())]


def describe_code(suite: Any, implementation: Any, build_dir: Path) -> dict[str, Any]:
    """Facts of the object code of one implementation, and its recipe.

    An implementation without sources (a library control) runs code that is not in the commit: its recipe and the
    installed libraries, which the environment pins, are its code. CUDA sources are only named: they are compiled apart
    (`cuda_code`).
    """
    from runners.measure.context import context_for
    from runners.measure.library import toolchain_words

    files = python_closure(suite.root, suite.files[implementation.name])
    recipe = recipe_hash(files, (*implementation.flags, str(implementation.threads), str(implementation.version)))
    if implementation.device != "cpu" and not implementation.sources:
        return {"recipe_hash": recipe}
    if implementation.device != "cpu":
        folder = suite.files[implementation.name].parent.relative_to(suite.root)
        return {
            "recipe_hash": recipe,
            "cuda_sources": [str(folder / name) for name in implementation.sources],
            "cuda_flags": list(implementation.flags),
        }
    if not implementation.sources:
        return {"recipe_hash": recipe, "code_hash": f"library:{recipe}"}
    library = context_for(suite, implementation, build_dir).library_path()
    return {"recipe_hash": recipe, "toolchain": toolchain_words(), **object_code(library.read_bytes())}
