"""The mean of the embeddings of tokens, and a linear layer."""

import torch
from torch import nn
from torch.nn import functional as F

WHOLE = ("functional",)
ROWS = 12


class Model(nn.Module):
    def __init__(self, num_tokens, width):
        super().__init__()
        self.table = nn.Embedding(num_tokens, width)
        self.fc = nn.Linear(width, 10)

    def forward(self, ids):
        return self.fc(self.table(ids).mean(dim=1))


def get_inputs():
    return [torch.randint(0, 50, (ROWS, 7))]


def get_init_inputs():
    return [50, 24]


def functional(self, ids):
    return F.linear(F.embedding(ids, self.table.weight).mean(1), self.fc.weight, self.fc.bias)


def bag(self, ids):
    return self.fc(F.embedding_bag(ids, self.table.weight, mode="mean"))


def indexed(self, ids):
    return self.fc(self.table.weight[ids].sum(dim=1) / ids.shape[1])


def selected(self, ids):
    rows = self.table.weight.index_select(0, ids.flatten())
    mean = rows.view(*ids.shape, self.table.embedding_dim).mean(1)
    return torch.addmm(self.fc.bias, mean, self.fc.weight.t())


def token_by_token(self, ids):
    total = self.table(ids[:, 0])
    for i in range(1, ids.shape[1]):
        total = total + self.table(ids[:, i])
    return self.fc(total / ids.shape[1])
