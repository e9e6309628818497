"""Writes looks at a memory as C: what weights find, how well entries fit, scores and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elman.recurrence.cpu.emit import lines_of
from elman.recurrence.cpu.layout import Layout
from elman.recurrence.looks import POSITIONS, Score
from elman.recurrence.symbols import Node


class LookEmitter:
    """Writes the looks of a stage; ``address`` tells where a value lies in the row."""

    at: Layout
    stored: Mapping[int, str]
    scores: Mapping[str, Score]

    def address(self, node: Node) -> str:
        raise NotImplementedError

    def _memory(self, name: str, dim: str) -> tuple[str, str]:
        """The first entry of this row in a memory, and how far it is to the next."""
        tensor, part, count = self.at.blocks[name]
        stride = f"{count} * {self.at.length(dim)}"
        entry = f"{self.at.tensor(tensor)} + row * {self.at.most(POSITIONS)} * {stride}"
        return f"({entry} + {part} * {self.at.length(dim)})", stride

    def looks(self, nodes: Sequence[Node]) -> list[str]:
        lines: list[str] = []
        S = self.at.length(POSITIONS) if nodes else ""
        pulls: dict[tuple[str, int], list[Node]] = {}  # of one score, with one gradient
        for node in nodes:
            if node.op == "context":
                entry, stride = self._memory(node.name, node.dim)
                (weights,) = node.args
                out, size = self.stored[node.index], self.at.length(node.dim)
                lines.append(
                    f"  context(w + {out}, {self.address(weights)}, {S}, {entry}, {stride}, {size});"
                )
            elif node.op == "fit":
                (query,) = node.args
                entry, stride = self._memory(node.name, query.dim)
                lines.append(
                    f"  fit(w + {self.stored[node.index]}, {self.address(query)}, {S}, {entry}, {stride}, "
                    f"{self.at.length(query.dim)});"
                )
            elif node.op == "score":
                lines += self._score(node)
            else:
                pulls.setdefault((node.name.split()[0], node.args[0].index), []).append(node)
        for together in pulls.values():
            lines += self._pull(together)
        return lines

    def _arguments(self, score: Score, args: Sequence[Node]) -> tuple[dict[tuple[str, str], str], list[str]]:
        """How an expression reads its arguments at unit u, and the lines that load them."""
        dim = score.result.dim
        entry, stride = self._memory(score.memory, dim)
        by_unit = args[:-1] if score.near else args
        lines = [f"V e{i} = *(V *)({self.address(a)} + u);" for i, a in enumerate(by_unit)]
        names = {("e", str(i)): f"e{i}" for i in range(len(by_unit))} | {
            ("m", score.memory): "m",
            ("e", "g"): "g",
        }
        names |= {("w", str(c)): f"all(near[at_j + {c}])" for c in range(len(score.near))}
        return names, [*lines, f"const REAL *entry = {entry} + u;", f"const long far = {stride};"]

    def _score(self, node: Node) -> list[str]:
        """The sum of an expression over the units, for every position; four positions at a time."""
        score = self.scores[node.name]
        names, loads = self._arguments(score, node.args)
        lines, (result,) = lines_of([score.result], names)
        A, S, out = (
            self.at.length(score.result.dim),
            self.at.length(POSITIONS),
            f"w + {self.stored[node.index]}",
        )
        body = [f"        {line}" for line in lines]
        return [
            *self._near(score, node.args),
            f"  for (long j = 0; j < {S}; j += 4) {{",
            f"    V sum[4] = {{all(0), all(0), all(0), all(0)}}; const long here = least(4, {S} - j);",
            f"    for (long u = 0, n = {A}; u < {A}; u += LANES, n -= LANES) {{",
            *(f"      {line}" for line in loads),
            "      for (long i = 0; i < here; i++) {",
            "        const long at_j = j + i; V m = load(entry + at_j * far, n);",
            *body,
            f"        sum[i] += keep({result}, n, 0);",
            "      }",
            "    }",
            f"    for (long i = 0; i < here; i++) ({out})[j + i] = total(sum[i])[0];",
            "  }",
            *(["  }"] if score.near else []),
        ]

    def _near(self, score: Score, args: Sequence[Node]) -> list[str]:
        """The value by position that a score reads around a position, with zeros at both ends."""
        if not score.near:
            return []
        S, room, r = self.at.length(POSITIONS), len(score.near), score.reach
        place = self.at.slot("near", "", f"({self.at.wide(POSITIONS)} + {room} * LANES)")
        return [
            f"  {{ REAL *const near = w + {place};",
            f"  for (long j = 0; j < {S} + {room}; j++)",
            f"    near[j] = j >= {r} && j - {r} < {S} ? {self.address(args[-1])}[j - {r}] : 0;",
        ]

    def _pull(self, nodes: Sequence[Node]) -> list[str]:
        """The gradients of a score's arguments and of its memory, from that of the score."""
        score = self.scores[nodes[0].name.split()[0]]
        gradient, *args = nodes[0].args
        names, loads = self._arguments(score, args)
        units = [node for node in nodes if int(node.name.split()[1]) < len(score.slopes) - 1]
        places = [node for node in nodes if node not in units]
        wanted = [score.slopes[int(node.name.split()[1])] for node in units]
        lines, results = lines_of([*wanted, score.slopes[-1], *(score.near if places else ())], names)
        near = results[len(units) + 1 :]
        A, S = self.at.length(score.result.dim), self.at.length(POSITIONS)
        tensor, part, count = self.at.blocks[score.memory]
        far, most = f"{count} * {A}", self.at.most(POSITIONS)
        place = f"{self.at.tensor(f'd_memory {tensor}')} + row * {most} * {far} + {part} * {A} + u"
        sums = [f"d{i}" for i in range(len(units))]
        before, after = self._near(score, args), ["  }"] if score.near else []
        if places:  # sums over the units for every position, of which the neighbours have parts
            size, out = f"{S} + {len(score.near)}", f"w + {self.stored[places[0].index]}"
            room = self.at.slot("around", "", f"({self.at.wide(POSITIONS)} + {len(score.near)}) * LANES")
            before += [f"  V *const around = (V *)(w + {room});"]
            before += [f"  for (long j = 0; j < {size}; j++) around[j] = all(0);"]
            after = [
                f"  for (long j = 0; j < {S}; j++) ({out})[j] = total(around[j + {score.reach}])[0];",
                *after,
            ]
        return [
            *before,
            f"  for (long u = 0, n = {A}; u < {A}; u += LANES, n -= LANES) {{",
            *(f"    {line}" for line in loads),
            *([f"    V {', '.join(f'{s} = all(0)' for s in sums)};"] if sums else []),
            f"    REAL *to = {place};",
            f"    for (long j = 0; j < {S}; j++) {{",
            f"      const long at_j = j; V g = all(({self.address(gradient)})[j]);",
            "      V m = load(entry + j * far, n);",
            *(f"      {line}" for line in lines),
            *(f"      {s} += {r};" for s, r in zip(sums, results, strict=False)),
            *(f"      around[j + {c}] += keep({r}, n, 0);" for c, r in enumerate(near)),
            f"      store(to + j * far, load(to + j * far, n) + {results[len(units)]}, n);",
            "    }",
            *(f"    *(V *)(w + {self.stored[n.index]} + u) = {s};" for s, n in zip(sums, units, strict=True)),
            "  }",
            *after,
        ]
