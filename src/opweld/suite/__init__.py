"""Many pairs and models, on all devices of one machine or of several: `opweld suite`.

`spec.py` reads what there is to do, `driver.py` hands it to an engine (`engines/`) task by task and
writes what comes back to the store (`store.py`), `worker/` is what runs where the devices are, and
`reading/` makes accounts of a store. Nothing here imports torch.
"""
