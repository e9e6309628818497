"""The cache of kernels can be damaged, shared, forbidden or full: results are right all the same."""

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile

import pytest
import torch

from comparison import assert_close, on
from elman import RNN, Cell
from elman.errors import BackendError, BackendNotice
from elman.recurrence import notices, trace
from elman.recurrence.cpu import compile as compiling
from forked import Forked, python

RUN = """
import torch, warnings
from elman import RNN
torch.manual_seed(1)
rnn, x = RNN("mgu", 3, 5), torch.randn(2, 4, 3)
notices = []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = rnn(x).outputs, rnn(x).outputs
    state = None
    with torch.no_grad():
        for x_t in x.unbind(1):
            y, state = rnn.eval().step(x_t, state)
rnn.backend = "loop"
expected = rnn(x).outputs
assert torch.allclose(found[0], expected, atol=1e-6) and torch.allclose(y, expected[:, -1], atol=1e-6)
print(*(type(w.message).__name__ for w in caught))
"""
FORCED = RUN.replace('RNN("mgu", 3, 5)', 'RNN("mgu", 3, 5, backend="cpu")')
CC = next((shutil.which(name) for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler on this machine")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The cache that a first process leaves: one library."""
    folder = tmp_path_factory.mktemp("first") / "cache"
    assert python(FORCED, ELMAN_CACHE=str(folder)).strip() == ""
    return folder


@pytest.fixture
def library(cache, compiled):
    """The one library of a first process, in a cache that a test may harm."""
    shutil.copytree(compiled, cache)
    (file,) = cache.iterdir()
    return file


@needs_compiler
def test_a_later_process_reads_the_cache(library):
    stamp = library.stat().st_mtime_ns
    python(FORCED, ELMAN_CACHE=str(library.parent))
    assert [file.stat().st_mtime_ns for file in library.parent.iterdir()] == [stamp]


@needs_compiler
@pytest.mark.parametrize("harm", ["truncated", "empty", "flipped", "garbage", "folder"])
def test_a_damaged_library_is_built_again(library, harm):
    data = library.read_bytes()
    middle = len(data) // 2
    if harm == "folder":
        library.unlink()
        library.mkdir()
    else:
        library.write_bytes(
            {
                "truncated": data[:middle],
                "empty": b"",
                "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
                "garbage": b"no library",
            }[harm]
        )
    python(FORCED, ELMAN_CACHE=str(library.parent))
    if harm != "folder":
        assert library.read_bytes()[:100] == data[:100]
        assert len(library.read_bytes()) == len(data)


@needs_compiler
@pytest.mark.parametrize("place", ["file", "beneath a file", "forbidden"])
def test_an_unusable_folder_does_not_matter(tmp_path, place):
    (tmp_path / "file").touch()
    (tmp_path / "closed").mkdir(mode=0o500)
    if place == "forbidden" and os.access(tmp_path / "closed", os.W_OK):
        folder = "/proc/elman"  # this user may write anywhere, but not there
    else:
        folder = str(
            {"file": tmp_path / "file", "beneath a file": tmp_path / "file" / "x"}.get(
                place, tmp_path / "closed"
            )
        )
    assert python(FORCED, ELMAN_CACHE=folder).split() == ["BackendNotice"]


@needs_compiler
def test_a_folder_that_fills_up_while_compiling_does_not_matter(tmp_path, cache):
    """The compiler itself runs out of space there; elsewhere it works."""
    script = tmp_path / "compiler"
    script.write_text(
        f'#!/bin/sh\ncase "$(pwd -P)" in {cache}*) echo "No space left" >&2; exit 1;; esac\nexec {CC} "$@"\n'
    )
    script.chmod(0o755)
    assert python(FORCED, ELMAN_CACHE=str(cache), CC=str(script)).split() == ["BackendNotice"]


@needs_compiler
@pytest.mark.parametrize("folder", ["", "."])
def test_an_empty_or_relative_cache_folder(tmp_path, folder):
    """An empty $ELMAN_CACHE is no folder: nothing is left in the working one."""
    code = f"import os; os.chdir({str(tmp_path)!r})\n{FORCED}"
    python(code, ELMAN_CACHE=folder, XDG_CACHE_HOME=str(tmp_path / "user"))
    left = [file for file in tmp_path.iterdir() if file.suffix == ".so"]
    assert len(left) == (0 if folder == "" else 1)


@needs_compiler
def test_processes_that_compile_at_once(cache):
    children = [Forked(FORCED, environment={"ELMAN_CACHE": str(cache)}) for _ in range(2)]
    for child in children:
        _, problem = child.communicate(timeout=600)
        assert child.returncode == 0, problem
    assert len(list(cache.iterdir())) == 1


@needs_compiler
def test_another_compiler_has_its_own_library(library, tmp_path):
    script = tmp_path / "other"
    script.write_text(f'#!/bin/sh\nexec {CC} "$@"\n')
    script.chmod(0o755)
    python(FORCED, ELMAN_CACHE=str(library.parent), CC=str(script))
    assert len(list(library.parent.iterdir())) == 2


@pytest.mark.parametrize("missing", ["", "/no/such/compiler"])
def test_without_a_compiler_everything_works_with_one_notice(cache, missing):
    assert python(RUN, ELMAN_CACHE=str(cache), CC=missing).split() == ["BackendNotice"]
    assert not cache.exists()
    code = """
import torch, warnings
from elman import RNN
from elman.errors import BackendError
warnings.simplefilter("ignore")
try:
    RNN("mgu", 3, 5, backend="cpu")(torch.randn(2, 4, 3))
except BackendError as error:
    print(error)
"""
    message = python(code, ELMAN_CACHE=str(cache), CC=missing)
    assert "E301" in message
    assert "no C compiler" in message
    assert "backend='auto' or 'loop'" in message


@needs_compiler
def test_a_compiler_that_fails_is_a_clear_error(cache):
    code = f"""
from elman.errors import BackendError
try:
    exec({FORCED!r})
except BackendError as error:
    print(error)
"""
    message = python(code, ELMAN_CACHE=str(cache), CC="false")
    assert "E301: backend 'cpu' cannot serve: the C compiler 'false' failed with status 1; use" in message
    assert "\nfalse -O3" in message


@needs_compiler
def test_another_processor_has_its_own_library(library):
    other = "import elman.recurrence.cpu.compile as c; c.processor = lambda: 'another'\n" + FORCED
    python(other, ELMAN_CACHE=str(library.parent))
    assert len(list(library.parent.iterdir())) == 2


@pytest.mark.skipif(shutil.which("false") is None, reason="no program that always fails")
def test_a_compiler_that_fails_leaves_the_loop_and_one_notice(cache):
    assert python(RUN, ELMAN_CACHE=str(cache), CC="false").split() == ["BackendNotice"]


@pytest.fixture
def first_use(cache, monkeypatch):
    """This process has compiled nothing and said nothing so far."""
    monkeypatch.setenv("ELMAN_CACHE", str(cache))
    monkeypatch.setattr(notices, "_noticed", set())
    for remembered in (compiling.compiler, compiling.library):
        remembered.cache_clear()
    yield
    for remembered in (compiling.compiler, compiling.library):
        remembered.cache_clear()


def assert_the_loop_serves(reason):
    """One notice tells the reason, whatever is done; and a numbered error to who insists."""
    rnn, x = RNN("mgu", 3, 5), torch.randn(2, 4, 3)
    with pytest.warns(BackendNotice, match=reason) as caught:
        found = rnn(x).outputs, rnn(x).outputs, RNN("mgu", 3, 5)(x).outputs
    assert len(caught) == 1
    rnn.backend = "loop"
    assert torch.equal(found[0], rnn(x).outputs)
    rnn.backend = "cpu"
    with pytest.raises(BackendError, match=f"E301: backend 'cpu' cannot serve: .*{reason}.*; use backend="):
        rnn(x)


COMPILERS = {
    "prints bytes": ("printf '\\377\\376' >&2; exit 3", "failed with status 3"),
    "dies": ("kill -9 $$", "failed with status -9"),
    "writes nothing": ("exit 0", "wrote no library"),
    "writes garbage": ('while [ "$1" != -o ]; do shift; done; echo no library > "$2"', "cannot be loaded"),
    "writes another library": (
        f'while [ "$1" != -o ]; do shift; done; exec {CC} -shared -x c /dev/null -o "$2"',
        "cannot be loaded",
    ),
    "hangs": ("sleep 60 | cat", "was stopped after 1 seconds"),
}


@needs_compiler
@pytest.mark.parametrize("what", COMPILERS)
def test_a_compiler_that_misbehaves(first_use, cache, tmp_path, monkeypatch, what):
    body, reason = COMPILERS[what]
    script = tmp_path / "compiler"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setattr(compiling, "PATIENCE", 1.0)
    assert_the_loop_serves(reason)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("what", ["folder", "not executable", "no program", "open quotation"])
def test_what_is_no_compiler(first_use, tmp_path, monkeypatch, what):
    file = tmp_path / "compiler"
    file.write_bytes(b"\x7fno program")
    file.chmod(0o600 if what == "not executable" else 0o700)
    monkeypatch.setenv("CC", {"folder": str(tmp_path), "open quotation": "'gcc"}.get(what, str(file)))
    assert_the_loop_serves("Exec format error" if what == "no program" else "no C compiler found")


def test_flags_that_cannot_be_read(first_use, monkeypatch):
    monkeypatch.setenv("ELMAN_CFLAGS", "'-O1")
    assert_the_loop_serves(r"\$ELMAN_CFLAGS cannot be read")


def test_no_room_anywhere(first_use, tmp_path, monkeypatch):
    monkeypatch.setenv("ELMAN_CACHE", "/dev/null")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert_the_loop_serves("a kernel cannot be compiled .No such file or directory")


def test_files_that_must_stay_short(cache):
    """As ``ulimit -f`` has it: neither the source nor a library can be written."""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n{RUN}"
    assert python(code, ELMAN_CACHE=str(cache)).split() == ["BackendNotice"]


@needs_compiler
@pytest.mark.parametrize("what", ["pipe", "odd bytes", "a command of two words"])
def test_odd_surroundings_work(first_use, tmp_path, monkeypatch, what):
    rnn, x = RNN("mgu", 3, 5, backend="cpu"), torch.randn(2, 4, 3)
    if what == "pipe":
        os.mkfifo(tmp_path / "pipe")
        monkeypatch.setenv("ELMAN_CACHE", str(tmp_path / "pipe"))
        with pytest.warns(BackendNotice, match="cache of kernels cannot be used .Not a directory"):
            rnn(x)
    elif what == "odd bytes":
        folder = tmp_path / os.fsdecode(b"a \xff\n")
        monkeypatch.setenv("ELMAN_CACHE", str(folder))
        rnn(x)
        assert len(list(folder.iterdir())) == 1
    else:
        monkeypatch.setenv("CC", f"env {CC}")
    found = rnn(x).outputs
    rnn.backend = "loop"
    assert_close({"y": found}, {"y": rnn(x).outputs}, 1e-6)


# ---- whose files are they? -------------------------------------------------------------------------


@needs_compiler
def test_folders_and_files_are_for_the_user_alone(first_use, tmp_path, monkeypatch):
    folder = tmp_path / "some" / "more" / "kernels"
    monkeypatch.setenv("ELMAN_CACHE", str(folder))
    before = os.umask(0)
    try:
        RNN("mgu", 3, 5, backend="cpu")(torch.randn(2, 4, 3))
    finally:
        os.umask(before)
    (file,) = folder.iterdir()
    modes = [
        stat.S_IMODE(path.stat().st_mode) for path in (folder.parent.parent, folder.parent, folder, file)
    ]
    assert modes == [0o700, 0o700, 0o700, 0o600]


@pytest.fixture
def own_library(cache, request, monkeypatch):
    """Each library of this test has its own name: a loader does not look twice at one that it knows."""
    monkeypatch.setenv("ELMAN_CFLAGS", f"-DTEST={request.node.callspec.indices['whose']}")
    python(FORCED, ELMAN_CACHE=str(cache))
    (file,) = cache.iterdir()
    return file


@needs_compiler
@pytest.mark.parametrize(
    "whose", ["folder", "folder behind a link", "file", "link", "another's", "another's file"]
)
def test_a_library_that_others_could_have_put_there_is_never_loaded(
    own_library, first_use, tmp_path, monkeypatch, whose
):
    if whose.startswith("another's") and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    library, folder, ran = own_library, own_library.parent, tmp_path / "ran"
    harm = f'__attribute__((constructor)) void run(void) {{ fclose(fopen("{ran}", "w")); }}'
    names = "".join(f"void {name}(void) {{}}\n" for name in compiling.ENTRIES)
    (tmp_path / "harm.c").write_text(f"#include <stdio.h>\n{harm}\n{names}")
    subprocess.run([CC, "-shared", "-fPIC", tmp_path / "harm.c", "-o", tmp_path / "harm.so"], check=True)
    data = (tmp_path / "harm.so").read_bytes()
    library.write_bytes(data + hashlib.sha256(data).digest())
    if whose.startswith("folder"):
        folder.chmod(0o777)
    elif whose == "file":
        library.chmod(0o666)
    elif whose == "link":
        library.rename(tmp_path / "elsewhere.so")
        library.symlink_to(tmp_path / "elsewhere.so")
    else:
        os.chown(folder if whose == "another's" else library, 12345, 12345)
    if whose == "folder behind a link":
        (tmp_path / "link").symlink_to(folder)
        monkeypatch.setenv("ELMAN_CACHE", str(tmp_path / "link"))
    rnn, x = RNN("mgu", 3, 5), torch.randn(2, 4, 3)
    if whose == "link":  # none of ours is one, so it goes the way of damaged ones
        found = rnn(x).outputs
    else:
        with pytest.warns(BackendNotice, match="others can write|not yours alone") as caught:
            found = rnn(x).outputs
        assert len(caught) == 1
    rnn.backend = "loop"
    assert_close({"y": found}, {"y": rnn(x).outputs}, 1e-6)
    assert not ran.exists()
    if whose in ("file", "link", "another's file"):  # it was built again in its place
        assert stat.S_IMODE(library.lstat().st_mode) == 0o600
        assert library.lstat().st_uid == os.geteuid()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="folders are known by their path here")
def test_a_folder_that_is_held_cannot_be_exchanged(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir(mode=0o700)
        (folder / folder.name).touch()
    with compiling.held(ours) as held:
        ours.rename(tmp_path / "away")
        theirs.rename(ours)
        assert os.listdir(held) == ["ours"]


# ---- large equations -------------------------------------------------------------------------------


class Chain(Cell):
    """h' = tanh(tanh(… x W + h W^h + b …)), a choice now and then: so many times."""

    state, gates = ("h",), ("a",)
    length = 100

    def R(self, x, h, s):
        y = x.a + h.a
        for i in range(self.length):
            y = torch.where(y > s.h, torch.tanh(y), y * s.h) if i % 10 == 0 else torch.tanh(y + s.h)
        return self.State(h=y)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_large_step_is_made_of_parts(dtype):
    rnn = RNN(Chain, 3, 21).to(dtype)
    x = torch.randn(3, 5, 3, dtype=dtype)
    lengths = torch.tensor([5, 2, 4])
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    assert_close(on("cpu", rnn, x, lengths), on("loop", rnn, x, lengths), tolerance)
    assert "forward_step_0(" in rnn.cells[0][0].equations.compiled[dtype].source


@pytest.mark.parametrize("operations", [400, 1400])
def test_the_functions_of_a_step_do_not_grow_with_it(operations):
    """What a compiler does to one function takes more than twice as long for twice the statements."""
    from elman.recurrence.cpu.emit import PART, emit

    equations = type("Long", (Chain,), {"length": operations})(3, 5).equations
    gradients = trace.derive(equations)
    functions = emit(equations, gradients, gradients).split("\n}\n")
    sizes = [text.count("\n") for text in functions if "_step_" in text]
    assert len(sizes) >= operations * 4 // PART
    assert max(sizes) <= 3 * PART


def test_equations_that_are_too_large_stay_on_the_loop(first_use, monkeypatch):
    monkeypatch.setattr(trace, "MOST_OPERATIONS", 20)
    assert_the_loop_serves("a step and its gradient are 21 operations, and kernels are made of 20 at most")


INSTRUCTIONS = ["", "-mno-avx512f", "-mno-avx512f -mno-avx -mno-fma"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="flags of x86-64")
@pytest.mark.parametrize("flags", INSTRUCTIONS, ids=["native", "avx2", "sse"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_and_instruction_sets(cache, compiler, flags):
    """Odd sizes, padding and the dearer functions, forward and backward, in both types of number."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} on this machine")
    code = """
import torch
from torch.nn import functional as F
from elman import RNN, Cell

class Some(Cell):
    state, gates, vectors = ("h", "c"), ("i", "z"), ("p",)
    def R(self, x, h, s):
        i = torch.sigmoid(x.i + h.i + self.p * s.c)
        c = torch.clamp(s.c, -2.0, 2.0) * (1 - i) + i * torch.tanh(x.z + h.z)
        return self.State(h=F.softplus(c) * torch.exp(-c.abs()), c=torch.where(c > 3, s.c, c))

torch.manual_seed(1)  # among unseeded draws some |c| is once in a while within a rounding of its kink
for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
    rnn = RNN(Some, 5, 37, layers=2, bidirectional=True).to(dtype)
    x, lengths = torch.randn(13, 9, 5, dtype=dtype), torch.randint(1, 10, (13,))
    found = []
    for rnn.backend in ("cpu", "loop"):
        outputs = rnn(x, lengths).outputs
        found.append((outputs, *torch.autograd.grad(outputs.sin().sum(), list(rnn.parameters()))))
    for a, b in zip(*found):
        assert (a - b).norm() <= tolerance * (b.norm() + 1)
"""
    python(code, ELMAN_CACHE=str(cache), CC=compiler, ELMAN_CFLAGS=flags)
