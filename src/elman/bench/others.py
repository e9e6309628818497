"""Kernels of others, measured where they are installed: FlashRNN's, and flash-linear-attention's HGRN."""

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FLASH, HGRN = "FlashRNN", "HGRN"
PACKAGES = {FLASH: "flashrnn", HGRN: "fla"}
INSTALLED_AS = {FLASH: "flashrnn", HGRN: "flash-linear-attention"}
WAYS = ("cuda_fused", "triton_fused", "cuda")  # of FlashRNN; which is best depends on the sizes


def absent_package(peer: str) -> str | None:
    """Why this peer cannot be measured, or None."""
    if find_spec(PACKAGES[peer]):
        return None
    return f"{peer} is not installed; pip install {INSTALLED_AS[peer]}"


class FlashLayer(nn.Module):
    """An LSTM or sLSTM of FlashRNN with its input product, in the fastest of its ways that runs here."""

    def __init__(self, function: str, H: int, heads: int) -> None:
        super().__init__()
        d = H // heads
        self.function, self.sizes = function, (4, heads, d)
        self.weight = nn.Parameter(torch.randn(4 * H, H) * H**-0.5)
        self.recurrent = nn.Parameter(torch.randn(4, heads, d, d) * d**-0.5)
        self.bias = nn.Parameter(torch.zeros(4, heads, d))
        self._way: str | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self._way is None:
            self._way = self._find_way(x)
        return self._unroll(x, self._way)

    def _unroll(self, x: Tensor, way: str) -> Tensor:
        B, T, H = x.shape
        parts = F.linear(x, self.weight).view(B, T, *self.sizes)
        from flashrnn.flashrnn import flashrnn

        numbers = str(x.dtype).removeprefix("torch.")
        own = {"function": self.function, "backend": way, "dtype": numbers}
        states, _ = flashrnn(parts, self.recurrent, self.bias, **own)
        outputs: Tensor = states[0].reshape(B, T, H)
        return outputs

    def _find_way(self, x: Tensor) -> str:
        """The fastest way, by one training step each; one that does not run here is left out."""
        seconds: dict[str, float] = {}
        for way in WAYS:
            try:
                seconds[way] = min(self._seconds(x.detach(), way) for _ in range(4))
            except Exception:  # whatever a foreign compiler raises
                continue
        if not seconds:
            raise RuntimeError("no way of FlashRNN runs on this machine")
        return min(seconds, key=lambda way: seconds[way])

    def _seconds(self, x: Tensor, way: str) -> float:
        from elman.bench.timing import event_clock

        return event_clock(lambda: self._unroll(x, way).sum().backward())


class GatedLinearLayer(nn.Module):
    """The minimal GRU by the HGRN kernel: its gates by torch, its recurrence by the kernel over chunks."""

    def __init__(self, H: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2 * H, H) * H**-0.5)
        self.bias = nn.Parameter(torch.zeros(2 * H))

    def forward(self, x: Tensor) -> Tensor:
        from fla.ops.hgrn import chunk_hgrn

        z, n = F.linear(x, self.weight, self.bias).chunk(2, -1)
        found = chunk_hgrn((torch.sigmoid(z) * n).contiguous(), F.logsigmoid(-z).contiguous())
        outputs: Tensor = found[0] if isinstance(found, tuple) else found
        return outputs
