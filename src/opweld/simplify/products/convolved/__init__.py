"""Convolutions, and what adds up or multiplies their results."""
