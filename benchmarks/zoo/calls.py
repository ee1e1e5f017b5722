"""The models of own.py and over_time.py with their fields, and calls of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from benchmarks.zoo import over_time, own
from torch import Tensor


def _tokens(batch: int, width: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, own.TOKENS, (batch, 32)),)


def _rows(batch: int, width: int) -> tuple[Tensor, ...]:
    return (torch.randn(16 * batch, width),)


def _sequence(length: int = 32) -> Callable[[int, int], tuple[Tensor, ...]]:
    return lambda batch, width: (torch.randn(batch, length, width),)


def _image(channels: int | None = None) -> Callable[[int, int], tuple[Tensor, ...]]:
    return lambda batch, width: (torch.randn(batch, channels or width, 32, 32),)


def _padded(batch: int, width: int) -> tuple[Tensor, ...]:
    lengths = 16 + torch.arange(batch) % 17
    return torch.randn(batch, 32, width), torch.arange(32) >= lengths[:, None]


def _graph(batch: int, width: int) -> tuple[Tensor, ...]:
    nodes = 64 * batch
    return torch.randn(nodes, width), torch.randint(0, nodes, (2, 8 * nodes))


Call = Callable[[int, int], tuple[Tensor, ...]]
MODELS: dict[str, tuple[Any, str, Call]] = {
    "LSTM classifier": (over_time.LstmClassifier, "recurrent", _tokens),
    "GRU tagger": (over_time.GruTagger, "recurrent", _tokens),
    "loop over time": (over_time.LoopOverTime, "recurrent", _sequence()),
    "selective scan, 128 steps": (over_time.SelectiveScan, "state space", _sequence(128)),
    "gated cell, 128 steps": (over_time.GatedCell, "recurrent", _sequence(128)),
    "bag of words": (own.BagOfWords, "text", _tokens),
    "padded encoder": (own.PaddedEncoder, "text", _padded),
    "encoder and decoder": (
        own.EncoderDecoder,
        "text",
        lambda batch, width: (torch.randn(batch, 32, width), torch.randn(batch, 24, width)),
    ),
    "routed experts": (own.RoutedExperts, "mixture of experts", _sequence()),
    "early exit": (own.EarlyExit, "tabular", _rows),
    "VQ codebook": (own.Codebook, "image", _rows),
    "diffusion UNet": (
        own.DiffusionUNet,
        "diffusion",
        lambda batch, width: (torch.randn(batch, 3, 32, 32), torch.randint(0, 1000, (batch,))),
    ),
    "temporal convolutions": (
        own.TemporalConvolutions,
        "audio",
        lambda batch, width: (torch.randn(batch, width, 64),),
    ),
    "keywords": (own.Keywords, "audio", lambda batch, width: (torch.rand(batch, 40, 64) * 4,)),
    "graph convolutions": (own.GraphConvolutions, "graph", _graph),
    "graph attention": (own.GraphAttention, "graph", _graph),
    "DeepFM": (
        own.FactorizationMachine,
        "tabular",
        lambda batch, width: (torch.randint(0, 1000, (16 * batch, 8)),),
    ),
    "running norm": (own.RunningNorm, "tabular", _rows),
    "MLP-Mixer": (own.Mixer, "vision", _image(3)),
    "squeeze and excitation": (own.Excited, "vision", _image()),
    "DCGAN generator": (own.Generator, "image", lambda batch, width: (torch.randn(batch, width),)),
    "point net": (own.PointNet, "vision", lambda batch, width: (torch.randn(batch, 3, 256),)),
    "state space by FFT": (over_time.StateSpace, "state space", _sequence()),
    "radiance field": (
        own.Radiance,
        "vision",
        lambda batch, width: (torch.randn(64 * batch, 3), torch.randn(64 * batch, 3)),
    ),
    "siamese": (own.Siamese, "text", lambda b, w: (torch.randn(16 * b, w), torch.randn(16 * b, w))),
    "coupling flow": (own.Coupling, "tabular", _rows),
}
