"""Emitted files with their libraries built: wheels for machines without a compiler."""
