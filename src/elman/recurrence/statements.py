"""Equations as statements of a program: every value once, arguments before results."""

from collections.abc import Callable, Iterable, Mapping

from elman.recurrence.operations import OPERATIONS
from elman.recurrence.symbols import Node


def statements(
    results: Iterable[Node | None],
    *,
    leaves: Mapping[tuple[str, str], str],
    known: Mapping[int, str],
    constant: Callable[[float], str],
    assign: Callable[[str, str, bool], str] = lambda name, value, truth: f"{name} = {value}",
) -> tuple[list[str], list[str]]:
    """Lines that compute the results, and the names under which they are found; no node is zero.

    Args:
        leaves: the name of every leaf, by its kind and its name.
        known: names of values that need not be computed, by the index of their node.
        constant: how a number is written.
        assign: the line that gives a value a name; the last argument says that it is a truth value.
    """
    lines: list[str] = []
    text = dict(known)

    def write(root: Node) -> str:
        todo = [root]
        while todo:
            node = todo[-1]
            missing = [a for a in node.args if a.index not in text] if node.index not in text else []
            if missing:
                todo.extend(missing)
                continue
            todo.pop()
            if node.index in text:
                continue
            if node.value is not None:
                text[node.index] = constant(node.value)
            elif not node.args:
                text[node.index] = leaves[node.op, node.name]
            else:
                expression = OPERATIONS[node.op].text.format(*(text[a.index] for a in node.args))
                text[node.index] = f"t{node.index}"
                lines.append(assign(f"t{node.index}", expression, node.boolean))
        return text[root.index]

    names = [constant(0.0) if node is None else write(node) for node in results]
    return lines, names
