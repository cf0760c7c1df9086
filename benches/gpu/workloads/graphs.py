"""Graph networks (torch_geometric) on random graphs."""
import numpy
import torch
from torch.nn import functional


def graph_net_random(job):
    """Every step a graph of another number of nodes and edges: attention over the edges, then
    aggregation over the nodes. Hardly a size comes twice."""
    from torch_geometric.nn import GATv2Conv, SAGEConv
    inner, heads = job.size((64, 4), (8, 2))
    model = torch.nn.ModuleList([SAGEConv(128, 256), GATv2Conv(256, inner, heads), GATv2Conv(inner * heads, inner, heads),
                                 SAGEConv(inner * heads, 40)])
    numbers = numpy.random.default_rng(0)
    yield
    model = model.to(job.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    yield
    for _ in job.steps:
        nodes = job.dice.randint(*job.size((20_000, 200_000), (50, 100)))
        edges = job.dice.randint(*job.size((200_000, 900_000), (100, 300)))
        job.note(nodes, edges)
        between = torch.from_numpy(numbers.integers(0, nodes, (2, edges))).to(job.device)
        x = torch.randn(nodes, 128, device=job.device)
        labels = torch.randint(0, 40, (nodes,), device=job.device)
        for layer in model[:-1]:
            x = functional.relu(layer(x, between))
        loss = functional.cross_entropy(model[-1](x, between), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del x
        yield loss.detach()
