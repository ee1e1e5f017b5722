"""Chains of products that are written as one `einsum`: "ij,jk,kl->il"."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.attrs import Operand
from ....ir.graph import Node


@dataclass(frozen=True, slots=True)
class Matrix:
    node: Node
    transposed: bool


@dataclass(frozen=True, slots=True)
class EinsumChain:
    operands: tuple[Matrix, ...]
    batched: bool


def chain_of_einsum(node: Node) -> EinsumChain | None:
    """The matrices of a chain; None where it is another call, or another sum.

    Letters in front that all operands and the result have count the matrices of a batch.
    """
    if node.attrs.target != "aten.einsum.default" or node.attrs.keywords:
        return None
    text, operands = node.attrs.arguments[:2]
    if not isinstance(text, str) or not all(isinstance(each, Operand) for each in operands):
        return None
    given = [node.inputs[each.index] for each in operands]
    left, _, result = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) < 3 or len(result) < 2 or not all(map(str.isalpha, (*terms, result))):
        return None
    batch = result[:-2]
    if not all(len(term) == len(batch) + 2 and term.startswith(batch) for term in terms):
        return None
    types = {each.type.dtype for each in given} | {node.type.dtype}
    if len(types) > 1 or len(batch) > 1 or not node.type.dtype.is_float:
        return None
    return _linked(terms, result, given, len(batch))


def _linked(terms: list[str], result: str, given: list[Node], batch: int) -> EinsumChain | None:
    """The operands where each begins where the one before ends, and inner letters are met twice."""
    at, matrices = result[-2], []
    for term, node in zip(terms, given, strict=True):
        first, last = term[-2], term[-1]
        if at not in (first, last) or first == last:
            return None
        matrices.append(Matrix(node, at == last))
        at = first if at == last else last
    inner = "".join(term[batch:] for term in terms)
    ends = at == result[-1] and result[-2] != result[-1]
    counted = all(inner.count(letter) == (1 if letter in result else 2) for letter in inner)
    same = all(matrix.node.type.shape[:batch] == given[0].type.shape[:batch] for matrix in matrices)
    return EinsumChain(tuple(matrices), batch > 0) if ends and counted and same else None
