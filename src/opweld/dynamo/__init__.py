"""`torch.compile(model, backend="opweld")`: graphs that Dynamo finds, through capture to emission.

`backend.py` is what torch.compile calls, `graph_class.py` makes a class of an FX graph, which is
what `opweld.optimize` takes, and `first_call.py` compares what came of it with the graph itself.
"""
