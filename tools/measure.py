"""Measures how readable the source is: sizes, comments, names and words.

    python tools/measure.py                      the whole of src/roost
    python tools/measure.py --package roost.core one package (or module) of it
    python tools/measure.py --list names         the places behind a figure
    python tools/measure.py --tree ../other      another checkout

It is a thermometer, not a gate: nothing fails here. It needs the standard library only, and
reads the source without importing it.
"""

import argparse
import ast
import io
import re
import signal
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PERSONS = re.compile(
    r"\b(who|whom|whose|whoever|whomever|nobody|somebody|everybody|anybody)(?:'s)?\b", re.IGNORECASE
)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|ruff:|mypy:|fmt:)")
RISKY = {"threading", "signal", "fcntl", "socket", "subprocess", "multiprocessing"}
OPENING = {"open", "read_text", "write_text", "read_bytes", "write_bytes", "fsync"}
CONTRACTS = {"Protocol", "ABC", "Exception", "BaseException", "Enum", "NamedTuple", "TypedDict"}
MOST_PARAMETERS = 5
FEWEST_COMMENTS = 3.0
LONG, TOO_LONG = 400, 600

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = Function | ast.ClassDef | ast.Module


@dataclass
class Module:
    """One source file, parsed."""

    name: str
    path: Path
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def lines(self) -> int:
        """How many lines the file has."""
        return len(self.text.splitlines())

    @cached_property
    def functions(self) -> list[Function]:
        """Functions and methods, nested ones too."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Top-level classes."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Comments with their line, without directives to tools."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [
            (token.start[0], token.string)
            for token in tokens
            if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string)
        ]

    @cached_property
    def docstrings(self) -> list[tuple[int, ast.Constant]]:
        """Docstrings with their first line."""
        found = []
        for node in self.nodes:
            if isinstance(node, Documented) and node.body:
                first = node.body[0]
                match first:
                    case ast.Expr(value=ast.Constant(value=str()) as text):
                        found.append((first.lineno, text))
        return found

    @cached_property
    def prose(self) -> list[tuple[int, str]]:
        """Lines of docstrings and comments, with their number."""
        found = [(line, text.lstrip("# ")) for line, text in self.comments]
        for first, node in self.docstrings:
            found += enumerate(str(node.value).splitlines(), first)
        return found

    @cached_property
    def public(self) -> list[tuple[str, int]]:
        """Public classes and functions defined at the top level, with their line."""
        return [
            (node.name, node.lineno)
            for node in self.tree.body
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
        ]

    @cached_property
    def used(self) -> set[str]:
        """Full names of what the module calls, or passes to a call."""
        names = set()
        for node in self.nodes:
            if isinstance(node, ast.Call):
                parts = [node.func, *node.args, *(keyword.value for keyword in node.keywords)]
                names |= {part.id for part in parts if isinstance(part, ast.Name)}
        return {self.imports.get(name, f"{self.name}.{name}") for name in names}

    @cached_property
    def imports(self) -> dict[str, str]:
        """Names that the module imports, each with the full name of what it stands for."""
        found = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".")[0]] = alias.name
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

    @cached_property
    def risky(self) -> list[str]:
        """The reasons for which this module needs comments: threads, signals, processes, files."""
        found = {name.split(".")[0] for name in self.imports.values()} & RISKY
        for node in self.nodes:
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else None
                name = called.id if isinstance(called, ast.Name) else name
                if name in OPENING:
                    found.add(name)
        return sorted(found)

    @property
    def density(self) -> float:
        """Comments per 100 lines."""
        return 100 * len(self.comments) / max(self.lines, 1)


class House:
    """All modules, and the questions about them."""

    def __init__(self, tree: Path, package: str = "") -> None:
        source = tree / "src"
        self.tree = tree
        self.all = []
        for path in sorted((source / "roost").rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.all.append(Module(name, path.relative_to(tree), path.read_text()))
        package = package and f"roost.{package.removeprefix('roost.')}"
        self.modules = [
            m
            for m in self.all
            if not package or m.name == package or m.name.startswith(f"{package}.")
        ]
        self.lines = sum(module.lines for module in self.modules)

    def functions(self) -> list[tuple[int, str]]:
        """Each function's length and place."""
        return [
            (end - node.lineno + 1, f"{m.path}:{node.lineno} {node.name}")
            for m in self.modules
            for node in m.functions
            if (end := node.end_lineno)
        ]

    def parameters(self) -> list[tuple[int, str]]:
        """Functions with more than five parameters: how many, and the place."""
        found = []
        for module in self.modules:
            for node in module.functions:
                a = node.args
                names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
                count = len([name for name in names if name not in {"self", "cls"}])
                if count > MOST_PARAMETERS:
                    found.append((count, f"{module.path}:{node.lineno} {node.name}"))
        return sorted(found, reverse=True)

    def comments(self) -> dict[str, float]:
        """Comments per 100 lines, by package."""
        comments: Counter[str] = Counter()
        lines: Counter[str] = Counter()
        for module in self.modules:
            package = ".".join(module.name.split(".")[:2])
            comments[package] += len(module.comments)
            lines[package] += module.lines
        return {package: 100 * comments[package] / lines[package] for package in sorted(lines)}

    def sparse(self) -> list[str]:
        """Modules with threads, signals, processes or files and too few comments."""
        found = [m for m in self.modules if m.risky and m.density < FEWEST_COMMENTS]
        found.sort(key=lambda m: m.density - m.lines / 10_000)
        return [
            f"{m.density:4.1f}  {m.path} ({m.lines} lines: {', '.join(m.risky)})" for m in found
        ]

    def risky(self) -> tuple[int, int]:
        """Comments and lines of the modules where threads, signals, processes or files meet."""
        chosen = [m for m in self.modules if m.risky]
        return sum(len(m.comments) for m in chosen), sum(m.lines for m in chosen)

    def docstrings(self) -> int:
        """Lines of docstrings."""
        return sum(
            (node.end_lineno or first) - first + 1
            for module in self.modules
            for first, node in module.docstrings
        )

    def classes(self) -> dict[str, list[str]]:
        """Public classes of the whole source by name, each with its places."""
        found: dict[str, list[str]] = defaultdict(list)
        for module in self.all:
            for node in module.classes:
                if not node.name.startswith("_"):
                    found[node.name].append(f"{module.path}:{node.lineno}")
        return found

    def names(self) -> dict[str, list[str]]:
        """Public classes that share their name, where one of them is in the chosen package."""
        return self._chosen({k: v for k, v in self.classes().items() if len(v) > 1})

    def top(self) -> dict[str, list[str]]:
        """Public top-level names that stand in more than one module."""
        found: dict[str, list[str]] = defaultdict(list)
        for module in self.all:
            seen: dict[str, int] = {}
            for name, line in module.public:
                seen.setdefault(name, line)
            for name, line in seen.items():
                found[name].append(f"{module.path}:{line}")
        return self._chosen({k: v for k, v in found.items() if len(v) > 1})

    def persons(self) -> tuple[int, list[str]]:
        """Words of prose in the source, and the lines with who, nobody and the like."""
        words, found = 0, []
        for module in self.modules:
            for line, text in sorted(module.prose):
                words += len(WORD.findall(text))
                found += [f"{module.path}:{line} {text.strip()}"] * len(PERSONS.findall(text))
        return words, found

    def pages(self) -> tuple[int, list[str]]:
        """The same for the documentation, without its code blocks."""
        words, found = 0, []
        for path in sorted((self.tree / "docs").rglob("*.md")):
            fenced = False
            for line, text in enumerate(path.read_text().splitlines(), 1):
                fenced ^= text.lstrip().startswith("```")
                if not fenced:
                    prose = re.sub(r"`[^`]*`", " ", text)
                    words += len(WORD.findall(prose))
                    place = f"{path.relative_to(self.tree)}:{line} {text.strip()}"
                    found += [place] * len(PERSONS.findall(prose))
        return words, found

    def sliced(self) -> list[str]:
        """Classes spread over files: a base in one module with exactly one subclass in another."""
        homes: dict[str, tuple[Module, ast.ClassDef]] = {}
        for module in self.all:
            for node in module.classes:
                homes[f"{module.name}.{node.name}"] = (module, node)
        children: dict[str, list[str]] = defaultdict(list)
        for name, (module, node) in homes.items():
            for base in node.bases:
                if (full := self._resolve(module, base, homes)) is not None:
                    children[full].append(name)
        found = []
        for parent, below in children.items():
            module, node = homes[parent]
            home = parent.rpartition(".")[0]
            alone = len(below) == 1 and below[0].rpartition(".")[0] != home
            alone = alone and not any(parent in other.used for other in self.all)
            if alone and module in self.modules and not self._contract(parent, homes):
                child = homes[below[0]]
                found.append(
                    f"{module.path}:{node.lineno} {node.name} <- {child[0].path} {child[1].name}"
                )
        return sorted(found)

    def long(self, limit: int) -> list[str]:
        """Modules with more lines than the limit, the longest first."""
        found = sorted(((m.lines, str(m.path)) for m in self.modules), reverse=True)
        return [f"{lines:5}  {path}" for lines, path in found if lines > limit]

    def _chosen(self, found: dict[str, list[str]]) -> dict[str, list[str]]:
        paths = {str(module.path) for module in self.modules}
        return {
            name: places
            for name, places in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
            if any(place.rpartition(":")[0] in paths for place in places)
        }

    @staticmethod
    def _resolve(
        module: Module, base: ast.expr, homes: dict[str, tuple[Module, ast.ClassDef]]
    ) -> str | None:
        if isinstance(base, ast.Subscript):  # Generic bases
            base = base.value
        written = ast.unparse(base)
        head, _, rest = written.partition(".")
        full = module.imports.get(head)
        full = f"{module.name}.{written}" if full is None else f"{full}{'.' * bool(rest)}{rest}"
        if full in homes:
            return full
        # A package may export a class of one of its modules: take the only one of that name in it.
        package, _, name = full.rpartition(".")
        inside = [
            home for home in homes if home.startswith(f"{package}.") and home.endswith(f".{name}")
        ]
        return inside[0] if len(inside) == 1 else None

    def _contract(self, name: str, homes: dict[str, tuple[Module, ast.ClassDef]]) -> bool:
        """Whether the class is a protocol, an abstract class, an exception or a suite."""
        module, node = homes[name]
        if node.name.endswith("Conformance"):  # a suite of tests, made to be inherited
            return True
        for base in node.bases:
            written = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
            last = written.rpartition(".")[2]
            if last in CONTRACTS or last.endswith("Error") or "BaseModel" in last:
                return True
            full = self._resolve(module, base, homes)
            if full is not None and self._contract(full, homes):
                return True
        return any(keyword.arg == "metaclass" for keyword in node.keywords)


def quantiles(lengths: Iterable[int], marks: tuple[float, ...]) -> str:
    """Give the values at the marks, and the largest."""
    ordered = sorted(lengths) or [0]
    chosen = [ordered[min(int(mark * len(ordered)), len(ordered) - 1)] for mark in marks]
    return "/".join(map(str, [*chosen, ordered[-1]]))


def shared(house: House) -> str:
    """Say how many public classes share their name."""
    mine = house.names()
    paths = {str(module.path) for module in house.modules}

    def count(places: Iterable[str]) -> int:
        return sum(place.rpartition(":")[0] in paths for place in places)

    number = sum(count(places) for places in mine.values())
    total = sum(count(places) for places in house.classes().values())
    return f"{100 * number / max(total, 1):.1f} %  ({number} of {total})"


def rate(found: tuple[int, list[str]]) -> str:
    """Say how many of the words are there per 1 000."""
    words, places = found
    return f"{1000 * len(places) / max(words, 1):.1f}  ({len(places)} of {words} words)"


def table(house: House) -> list[tuple[str, str, str]]:
    """Every measure: the word for --list, what it is, its figure."""
    top, (comments, lines) = house.top(), house.risky()
    per = 100 / max(house.lines, 1)
    counted = sum(len(module.comments) for module in house.modules)
    parameters, functions = house.parameters(), house.functions()
    return [
        ("", "lines / files", f"{house.lines} / {len(house.modules)}"),
        ("functions", "function length med/p90/p99/max",
         quantiles((length for length, _ in functions), (0.5, 0.9, 0.99))),
        ("modules", "module length med/p90/max",
         quantiles((module.lines for module in house.modules), (0.5, 0.9))),
        ("long", f"modules over {LONG} / {TOO_LONG} lines",
         f"{len(house.long(LONG))} / {len(house.long(TOO_LONG))}"),
        ("parameters", f"functions with more than {MOST_PARAMETERS} parameters",
         f"{len(parameters)}  ({100 * len(parameters) / max(len(functions), 1):.1f} %)"),
        ("comments", "comments per 100 lines", f"{per * counted:.1f}"),
        ("risky", "  where threads, signals, processes, files meet",
         f"{100 * comments / max(lines, 1):.1f}  ({len(house.sparse())} modules below 3)"),
        ("", "docstring lines per 100", f"{per * house.docstrings():.1f}"),
        ("names", "public classes that share their name", shared(house)),
        ("top", "public top-level names in more than one module",
         f"{len(top)}  ({sum(map(len, top.values()))} definitions)"),
        ("persons", "who, nobody, whoever … per 1 000 words, source", rate(house.persons())),
        ("pages", "who, nobody, whoever … per 1 000 words, docs", rate(house.pages())),
        ("sliced", "classes spread over files by inheritance", str(len(house.sliced()))),
    ]  # fmt: skip


def listed(found: dict[str, list[str]]) -> list[str]:
    """Write names and their places as lines."""
    return [
        f"{name} ({len(places)})\n    " + "\n    ".join(places) for name, places in found.items()
    ]


LISTS: dict[str, Callable[[House], Iterable[str]]] = {
    "functions": lambda house: [
        f"{length:4}  {place}" for length, place in sorted(house.functions(), reverse=True)[:50]
    ],
    "modules": lambda house: house.long(0)[:50],
    "long": lambda house: house.long(LONG),
    "parameters": lambda house: [f"{count:3}  {place}" for count, place in house.parameters()],
    "comments": lambda house: [f"{v:4.1f}  {package}" for package, v in house.comments().items()],
    "risky": lambda house: house.sparse(),
    "names": lambda house: listed(house.names()),
    "top": lambda house: listed(house.top()),
    "persons": lambda house: house.persons()[1],
    "pages": lambda house: house.pages()[1],
    "sliced": lambda house: house.sliced(),
}


def main() -> None:
    """Print the table, or one list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", choices=sorted(LISTS), help="print the places behind a figure")
    parser.add_argument("--package", default="", help="measure this package or module alone")
    parser.add_argument("--tree", type=Path, default=Path())
    chosen = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends the list without a traceback
    house = House(chosen.tree, chosen.package)
    if chosen.list:
        print("\n".join(LISTS[chosen.list](house)))
        return
    for word, text, figure in table(house):
        print(f"{text:52} {figure:28} {'--list ' + word if word else ''}".rstrip())


if __name__ == "__main__":
    main()
