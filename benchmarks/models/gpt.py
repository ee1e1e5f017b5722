"""A GPT of 12 blocks, of GPT-2's width (Radford et al., 2019), with a tied output layer."""

import torch
from torch import nn
from torch.nn import functional as F

DEPTH, WIDTH, HEADS = 12, 768, 12
VOCABULARY, CONTEXT, LENGTH = 50257, 1024, 256
DROPOUT = 0.1


class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            each.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for each in self.qkv(x).split(WIDTH, dim=2)
        )
        dropout = DROPOUT if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        x = x.transpose(1, 2).reshape(batch, length, WIDTH)
        return self.dropout(self.project(x))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Linear(WIDTH, 4 * WIDTH)
        self.project = nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        x = F.gelu(self.expand(x), approximate="tanh")
        return self.dropout(self.project(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = CausalAttention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def get_inputs(batch=2):
    return [torch.randint(VOCABULARY, (batch, LENGTH))]


def get_init_inputs():
    return [DEPTH]
