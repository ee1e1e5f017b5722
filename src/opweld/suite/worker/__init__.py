"""What runs where the devices are, the same for every engine.

`Supervisor` (`supervisor.py`) keeps one slot: it runs no code of a unit itself, holds the lock of
the device, looks after the GPU, and starts and ends the process that does the work (`serve.py`).
"""
