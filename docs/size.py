"""Code lines of the package and of the tests by folder, as the table of `size.md`.

A code line is one that is not blank, a comment or a docstring.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NO_CODE = {getattr(tokenize, name) for name in ["COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"]}
_DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
_MOST_ARGUMENTS = 8


def code_lines(source: str) -> int:
    """The number of code lines of a module."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def import_lines(source: str) -> int:
    """The lines of a module's imports."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def argument_counts(source: str) -> list[int]:
    """The numbers of arguments of all functions of a module, without `self`."""
    counts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            counts.append(len(names) - (names[:1] in (["self"], ["cls"])))
    return counts


def main() -> None:
    """Print the table."""
    print("| folder | files | code lines |\n|---|---|---|")
    for top in ("ndpsim", "tests"):
        files, lines = Counter[str](), Counter[str]()
        arguments, imports = list[int](), 0
        for path in sorted((ROOT / top).rglob("*.py")):
            source, parts = path.read_text(encoding="utf-8"), path.relative_to(ROOT).parts
            folder = "/".join(parts[:2]) if top == "ndpsim" and len(parts) > 2 else top
            files[folder] += 1
            lines[folder] += code_lines(source)
            arguments += argument_counts(source)
            imports += import_lines(source)
        if len(files) > 1:
            for folder in sorted(files):
                print(f"| `{folder}` | {files[folder]} | {lines[folder]:,} |")
        many = sum(count > _MOST_ARGUMENTS for count in arguments)
        print(f"| **all of `{top}`** | {files.total()} | {lines.total():,} |")
        print(f"| of them imports | | {imports:,} |")
        print(f"| functions with more than {_MOST_ARGUMENTS} arguments | | {many} of {len(arguments):,} |")


if __name__ == "__main__":
    main()
